"""The growth of costs from a thousand sensors to a million: 40 % duplicates, no-op pokes, 1 % landing per interval."""

import time
from collections.abc import Iterator

from benchmarks.report import Row, demand
from benchmarks.sensors import NEVER
from benchmarks.stage import PRODUCT, Stage, less
from harness.until import until

BATCH = 100_000  # registrations that the client has in memory at once


def run(full: bool) -> Iterator[Row]:
    """A thousand to a hundred thousand every 18 s; a million every 180 s, which is as many pokes a second."""
    sizes = [(1_000, 18.0, 1.0), (10_000, 18.0, 1.0), (100_000, 18.0, 1.0)]
    if full:
        sizes.append((1_000_000, 180.0, 5.0))
    base: Row = {}
    for sensors, interval, tick in sizes:
        row = measure(f"{sensors:,} every {interval:g} s", sensors, interval=interval, tick=tick)
        base = base or row  # with few groups a worker takes about as much as without groups
        if sensors >= 100_000:
            memory, groups = (row[name] - base[name] for name in ("memory of a worker, MB", "groups"))
            row["bytes a resident group"] = 1e6 * memory / groups
        yield row


def measure(case: str, sensors: int, *, interval: float, tick: float) -> Row:
    """Register, wait until every group was poked once, and measure one interval."""
    groups = sensors * 6 // 10
    with Stage(tick=tick, poke_interval=interval, groups_cached=2 * groups) as stage:
        before, began, origin = stage.cpu(), time.monotonic(), time.time()
        for start in range(0, sensors, BATCH):
            stage.pool.register_many(
                {
                    "sensor": "benchmarks.sensors.NoOp",
                    "poke_context": {"n": n % groups, "land_at": land_at(n % groups, origin, interval)},
                    "dag_id": f"dag{n % 500}",
                    "task_id": f"task{n}",
                    "run_id": "run",
                }
                for n in range(start, min(start + BATCH, sensors))
            )
        register_cpu, registered = less(stage.cpu(), before), time.monotonic() - began
        demand(stage.sensing() == sensors, "not all were registered")
        stage.vacuum()  # as autovacuum does within a minute
        stage.start()
        poked_all = until("a poke of each", lambda: stage.counters()["poked"] >= groups, 3 * interval + 300, 1.0)
        demand(poked_all, "not all were poked")
        started_cold = time.monotonic() - began - registered
        # one interval passes, so that all have had their period
        time.sleep(interval)
        cpu, counted, from_ = stage.cpu(), stage.counters(), time.monotonic()
        time.sleep(interval)
        used, seconds, now_counted = less(stage.cpu(), cpu), time.monotonic() - from_, stage.counters()
        pokes = now_counted["poked"] - counted["poked"]
        demand(pokes >= 0.95 * stage.groups(), f"only {pokes} pokes of {stage.groups()} groups in an interval")
        memory = stage.memory()
        with stage.statements() as statements:
            time.sleep(10 * tick)
        began_cold = stage.restart_workers()
        poked_before = stage.counters()["poked"]
        until(
            "a poke of each after the restart",
            lambda: stage.counters()["poked"] - poked_before >= 0.98 * stage.groups(),
            3 * interval + 300,
            0.5,
        )
        return {
            "case": case,
            "sensors": sensors,
            "groups": groups,
            "interval, s": interval,
            "registration, s": registered,
            "registration, µs of CPU a row": {name: round(1e6 * v / sensors, 1) for name, v in register_cpu.items()},
            "first poke of all, s": started_cold,
            "pokes a second": pokes / seconds,
            "landed": now_counted["settled"] - counted["settled"],
            "CPU, % of one core": {name: round(100 * value / seconds, 2) for name, value in used.items()},
            "CPU in all, % of one core": 100 * sum(used.values()) / seconds,
            "CPU of a poke, µs": 1e6 * sum(used.values()) / pokes,
            "memory of a worker, MB": memory / 1e6,
            "bytes a resident group": None,
            "statements a range and tick": len(statements) / (10 * PRODUCT["shards"]),
            "restart, all poked after, s": time.monotonic() - began_cold,
        }


def land_at(n: int, origin: float, interval: float) -> float:
    """Return when a condition lands: a tenth lands evenly over ten intervals, one in a hundred in each."""
    return NEVER if n % 10 else origin + 20 + 10 * interval * (n // 10 * 7_919 % 10_007) / 10_007
