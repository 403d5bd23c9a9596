"""The close of a worker ends its idle poke threads, and its own threads."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from harness.until import until
from sensorpool import Pool
from sensorpool.worker.context import Worker
from tests.support.builders import classpath
from tests.support.sensors import answering, hanging
from tests.support.troubled import put_in_trouble

TICK = 0.2


def threads() -> set[threading.Thread]:
    """Return the threads of this process."""
    return set(threading.enumerate())


def names(of: set[threading.Thread]) -> set[str]:
    """Return the names of threads."""
    return {thread.name for thread in of}


def test_a_worker_that_is_closed_leaves_no_thread(make_pool: Callable[..., Pool], tmp_path: Path) -> None:
    classes = [answering.FindsNothing, answering.Lands, answering.AsyncLands, hanging.WaitsToBeKilled]
    pool = make_pool(sensors_enabled=[*map(classpath, classes)], shards=1, tick=TICK, poke_interval=TICK)
    for cls in classes[:3]:
        pool.register(classpath(cls), {})
    pool.outbox.close()
    before = threads()
    worker = Worker(pool.settings, watchdog=True)
    time.sleep(TICK)
    assert worker.run_job(pool.ranges[0], "test/1").poked == 3
    pid_file = tmp_path / "pid"
    hangs = pool.register(classpath(hanging.WaitsToBeKilled), {"pid_file": str(pid_file)})
    put_in_trouble(pool.database, [hangs.group_id], overruns=1)
    worker.run_job(pool.ranges[0], "test/2")
    until("a child to poke", pid_file.exists)
    started = names(threads() - before)
    assert {"poke", "poke-loop", "watchdog", "poke-isolated", "poke-background"} <= started
    worker.close()
    until("its threads to end", lambda: not threads() - before)
