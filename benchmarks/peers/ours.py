"""The pool itself, on the same load: one worker of one child, one beat, PostgreSQL, Redis."""

import time
from importlib.metadata import version

from benchmarks.peers.window import INTERVAL, Result, paths, resident, result, transactions, watch, whole_intervals
from benchmarks.stage import UNTIL_QUIET, Stage
from harness.until import until

TICK = 5.0
NOTE = (
    "beat, worker, its child, PostgreSQL and Redis are all counted, less what they take while nothing waits; "
    "with few sensors it is the ticks that cost"
)
IDLE = 60.0  # seconds: rescue, and all that is done seldom, falls into it


def measure(size: int, seconds: float, interval: float = INTERVAL) -> Result:
    """Measure the steady state: every condition has been poked."""
    with Stage(workers=1, poke_interval=interval, tick=TICK) as stage:
        stage.start()

        def sent() -> int:
            return transactions(stage.service.settings.database_url)

        time.sleep(UNTIL_QUIET)
        idle = watch(IDLE, stage.cpu, lambda: 0, sent)
        stage.pool.register_many(
            {
                "sensor": "sensorpool.sensors.PathSensor",
                "poke_context": {"path": path},
                "dag_id": f"d{n % 50}",
                "task_id": f"t{n}",
                "run_id": "r",
            }
            for n, path in enumerate(paths(stage.folder, size))
        )

        def pokes() -> int:
            return stage.counters()["poked"]

        distinct = len(set(paths(stage.folder, size)))
        until("a round", lambda: pokes() >= distinct, 600, 1.0)
        stage.vacuum()
        time.sleep(TICK)  # the work after the first pokes is over
        seen = watch(
            whole_intervals(seconds, interval),
            stage.cpu,
            pokes,
            sent,
        )
        memory = resident(*(process.pid for process in stage.service.processes))
    return result(
        f"sensorpool, every {interval:g} s",
        f"sensorpool {version('sensorpool')}",
        size,
        seen,
        shares=True,
        memory=memory,
        asked=size,
        note=NOTE,
        interval=interval,
        idle=idle,
    )


def measure_60(size: int, seconds: float) -> Result:
    """Measure the pool with its usual interval."""
    return measure(size, max(seconds, 180.0), 60.0)  # PostgreSQL looks after new rows in the first minute
