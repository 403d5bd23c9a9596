"""Many instances that end at once: landed groups, duplicates of one condition, timeouts."""

import time
from collections.abc import Iterator

from benchmarks.report import Row, demand
from benchmarks.sensors import NEVER
from benchmarks.stage import HOUR, UNTIL_QUIET, Stage, less
from harness.until import until


def run(full: bool) -> Iterator[Row]:  # noqa: ARG001  # its size is what is asked for
    """Measure each case."""
    yield measure("10,000 groups land at once", groups=10_000, waiters=1)
    yield measure("20,000 wait for one that lands", groups=1, waiters=20_000)
    yield measure("10,000 timeouts at once", groups=10_000, waiters=1, timeouts=True)


def measure(case: str, *, groups: int, waiters: int, timeouts: bool = False) -> Row:
    """Register, wait for the moment, and measure the cost above the service's usual cost."""
    sensors, interval = groups * waiters, 5.0
    # a round of rescue looks at every row: it would count in one case and not in another
    with Stage(tick=1.0, poke_interval=interval, groups_cached=100_000, rescue_interval=HOUR) as stage:
        stage.start()
        time.sleep(UNTIL_QUIET)
        before, began = stage.cpu(), time.monotonic()
        time.sleep(10)
        idle = {name: value / (time.monotonic() - began) for name, value in less(stage.cpu(), before).items()}
        moment = time.time() + 30
        stage.pool.register_many(
            {
                "sensor": "benchmarks.sensors.NoOp",
                "poke_context": {"n": n // waiters, "land_at": NEVER if timeouts else moment},
                "dag_id": f"dag{n % 50}",
                "task_id": f"task{n}",
                "run_id": "run",
                "timeout": moment - time.time() if timeouts else 600,
            }
            for n in range(sensors)
        )
        demand(time.time() < moment - 10, "registration took too long")
        time.sleep(moment - 1 - time.time())
        demand(stage.sensing() == sensors, "some settled before their time")
        before, began = stage.cpu(), time.monotonic()
        # asked of the workers' log: a count of all rows in PostgreSQL would cost 4 µs a row
        until("all to settle", lambda: stage.counters()["settled"] >= sensors, 60, 0.5)
        time.sleep(1)
        seconds = time.monotonic() - began
        used = {name: value - idle[name] * seconds for name, value in less(stage.cpu(), before).items()}
        used.pop("client")
        first, last = stage.rows("SELECT min(settled_at), max(settled_at) FROM sensor_instance")[0]
        demand(stage.states() == {"failed" if timeouts else "success": sensors}, f"ended as {stage.states()}")
        demand(not stage.rows("SELECT 1 FROM sensorpool_outbox"), "some were not published")
        return {
            "case": case,
            "rows": sensors,
            "CPU of a row, µs": 1e6 * sum(used.values()) / sensors,
            "by part, µs": {name: round(1e6 * value / sensors, 1) for name, value in used.items()},
            "first settled after, s": first / 1000 - moment,
            "last settled after, s": last / 1000 - moment,
        }
