"""The load of the Smart Sensor's users at Airbnb: 20,000 sensors, 40 % of them duplicates, pokes of 100 ms.

AIP-17 served it with 80 processes, one poke in three minutes.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from benchmarks.report import Row, demand, quantiles
from benchmarks.sensors import NEVER, RECORD
from benchmarks.stage import Stage, less
from harness.until import until

SENSORS, GROUPS, POKE = 20_000, 12_000, 0.1
LANDING = 0.2  # the share of the groups that land during the measurement


def run(full: bool) -> Iterator[Row]:
    """Poke all groups every 18 s; with ``full`` also every 180 s, as Airbnb did."""
    yield measure("every 18 s", interval=18.0, rounds=3, tick=1.0, shards=2, poke_concurrency=128)
    if full:
        yield measure("every 180 s", interval=180.0, rounds=2, tick=5.0)


def measure(case: str, *, interval: float, rounds: int, tick: float, **settings: float) -> Row:
    """Measure ``rounds`` intervals."""
    with Stage(tick=tick, poke_interval=interval, **settings) as stage:
        record = stage.folder / "pokes"
        began = time.time()
        # first all groups are poked once; then some land, evenly, until an interval before the end
        from_, until_ = began + interval + 30, began + interval + 30 + interval * (rounds - 1)
        landing = int(GROUPS * LANDING)
        lands = [from_ + (until_ - from_) * n / landing if n < landing else NEVER for n in range(GROUPS)]
        stage.pool.register_many(
            {
                "sensor": "benchmarks.sensors.Slow",
                "poke_context": {"n": n % GROUPS, "seconds": POKE, "land_at": lands[n % GROUPS], "record": str(record)},
                "dag_id": f"dag{n % 50}",
                "task_id": f"task{n}",
                "run_id": "run",
            }
            for n in range(SENSORS)
        )
        demand(stage.sensing() == SENSORS, "not all were registered")
        stage.start()
        until("a poke of each", lambda: len(read_record(record)) == GROUPS, 3 * interval + 60, 1.0)
        demand(time.time() < from_ + 10, "the first round took too long")
        time.sleep(max(0.0, from_ - time.time()))
        before, started = stage.cpu(), time.time()
        time.sleep(max(0.0, until_ + interval + 2 * tick - time.time()))
        used, seconds = less(stage.cpu(), before), time.time() - started
        pokes = read_record(record)
        settled = stage.rows("SELECT task_id, settled_at FROM sensor_instance WHERE state = 'success'")
        late = [at / 1000 - lands[int(task_id.removeprefix("task")) % GROUPS] for task_id, at in settled]
        expected = sum(1 for n in range(SENSORS) if n % GROUPS < landing)
        demand(len(settled) == expected, f"{len(settled)} of {expected} that landed were settled")
        gaps = [
            after - earlier
            for n, times in pokes.items()
            if n >= landing
            for earlier, after in pairwise(at for at in times if at >= started)
        ]
        made = sum(len([at for at in times if at >= started]) for times in pokes.values())
        return {
            "case": case,
            "sensors": SENSORS,
            "groups": GROUPS,
            "worker processes that poke": len(stage.children()),
            "pokes a second": made / seconds,
            "CPU, % of one core": {name: round(100 * value / seconds, 2) for name, value in used.items()},
            "CPU in all, % of one core": 100 * sum(used.values()) / seconds,
            "CPU of a poke, µs": 1e6 * sum(used.values()) / made,
            "missed intervals": sum(1 for gap in gaps if gap > interval + 2 * tick),
            "between two pokes, s": quantiles(gaps),
            "true to settled, s": quantiles(late) | {"mean": round(sum(late) / len(late), 3)},
            "memory of a worker, MB": stage.memory() / 1e6,
        }


def read_record(path: Path) -> dict[int, list[float]]:
    """Return the times of the pokes of each group."""
    times: dict[int, list[float]] = defaultdict(list)
    if path.exists():
        whole = path.read_bytes()
        for n, at in RECORD.iter_unpack(whole[: len(whole) // RECORD.size * RECORD.size]):
            times[n].append(at)
    return times
