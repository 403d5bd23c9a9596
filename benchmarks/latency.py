"""The time from a true condition to the settled row, and to the message of the result."""

import threading
import time
from collections.abc import Iterator

from benchmarks.report import Row, demand, quantiles
from benchmarks.sensors import NEVER
from benchmarks.stage import Stage
from harness.until import until
from sensorpool.publish import listen

SENSORS = 1_000
HOUR = 3_600.0
WOKEN_A_SECOND = 25


def run(full: bool) -> Iterator[Row]:
    """Measure intervals of 5 s (a tick of 1 s) and 60 s (a tick of 5 s), and one of an hour with wake-ups."""
    yield measure(interval=5.0, tick=1.0)
    if full:
        yield measure(interval=60.0, tick=5.0)
    yield woken(tick=5.0)


def measure(*, interval: float, tick: float) -> Row:
    """Measure conditions that become true evenly over four intervals."""
    with Stage(tick=tick, poke_interval=interval) as stage:
        stage.start()
        from_ = time.time() + interval + 15
        lands = {f"task{n}": from_ + 4 * interval * n / SENSORS for n in range(SENSORS)}
        heard: dict[str, float] = {}
        done = threading.Event()

        def hear() -> None:
            with listen(stage.service.settings, until=done.is_set) as bodies:
                for body in bodies:
                    now = time.time()
                    heard.update((each["task_id"], now) for each in body["settled"])

        listener = threading.Thread(target=hear)
        listener.start()
        stage.pool.register_many(
            {
                "sensor": "benchmarks.sensors.NoOp",
                "poke_context": {"n": n, "land_at": lands.get(f"task{n}", NEVER)},
                "dag_id": "dag",
                "task_id": f"task{n}",
                "run_id": "run",
            }
            for n in range(SENSORS)
        )
        demand(time.time() < from_, "registration took too long")
        until("all messages", lambda: len(heard) == SENSORS, 10 * interval + 60, 0.2)
        done.set()
        listener.join()
        settled = {task_id: at / 1000 for task_id, at in stage.rows("SELECT task_id, settled_at FROM sensor_instance")}
        late = [settled[task_id] - at for task_id, at in lands.items()]
        told = [heard[task_id] - settled[task_id] for task_id in lands]
        mean = sum(late) / len(late)
        return {
            "case": f"interval {interval:g} s, tick {tick:g} s",
            "sensors": SENSORS,
            "true to settled, s": quantiles(late),
            "mean above half an interval and half a tick, ms": 1000 * (mean - interval / 2 - tick / 2),
            "longest above an interval and a tick, ms": 1000 * (max(late) - interval - tick),
            "settled to heard, s": quantiles(told),
        }


def woken(*, tick: float) -> Row:
    """Measure conditions of an hour's interval: each becomes true, and is woken by its location then, 25 a second."""
    with Stage(tick=tick, poke_interval=HOUR) as stage:
        stage.start()
        from_ = time.time() + 30
        lands = {f"task{n}": from_ + n / WOKEN_A_SECOND for n in range(SENSORS)}
        stage.pool.register_many(
            {
                "sensor": "benchmarks.sensors.NoOp",
                "poke_context": {"n": n, "land_at": at},
                "location": f"s3://bench/{task_id}",
                "dag_id": "dag",
                "task_id": task_id,
                "run_id": "run",
            }
            for n, (task_id, at) in enumerate(lands.items())
        )
        until("a poke of each", lambda: stage.counters()["poked"] >= SENSORS, 25, 0.2)
        demand(time.time() < from_, "the first pokes took too long")
        for task_id, at in lands.items():
            time.sleep(max(0.0, at - time.time()))
            stage.pool.wake(location=f"s3://bench/{task_id}")
        query = "SELECT task_id, settled_at FROM sensor_instance WHERE settled_at IS NOT NULL"
        until("all ends", lambda: len(stage.rows(query)) == SENSORS, 30, 0.5)
        late = [settled_at / 1000 - lands[task_id] for task_id, settled_at in stage.rows(query)]
        return {
            "case": f"interval {HOUR:,.0f} s, tick {tick:g} s, woken",
            "sensors": SENSORS,
            "true to settled, s": quantiles(late),
        }
