"""A poke that meets a resource which another one has used up is poked apart; it neither fails nor times out."""

import errno
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.until import until
from sensorpool import Pool
from sensorpool.model.states import State
from sensorpool.model.suspicion import Suspicion
from sensorpool.worker import job
from sensorpool.worker.context import Worker

TICK = 0.2


class Meets:
    """Meets the shortage in a worker; lands in a child of the isolated lane when its file exists."""

    def __init__(self, name: str) -> None:
        self.name = name

    def poke(self, context: Any) -> Any:
        spec = sys.modules["__main__"].__spec__
        if spec is None or spec.name != "sensorpool.poke.child_main":
            raise OSError(errno.EMFILE, "Too many open files")
        return Path(self.name).exists()


class MeetsAsync(Meets):
    """Does the same on the event loop."""

    async def poke(self, context: Any) -> Any:
        return Meets.poke(self, context)


@pytest.mark.parametrize("cls", [Meets, MeetsAsync])
def test_who_meets_it_is_poked_apart(
    make_pool: Callable[..., Pool], make_worker: Callable[..., Worker], tmp_path: Path, cls: type
) -> None:
    path = f"{__name__}.{cls.__name__}"
    pool = make_pool(sensors_enabled=[path], shards=1, tick=TICK, poke_interval=TICK)
    worker, landed = make_worker(pool.settings), tmp_path / "landed"
    made = pool.register(path, {"name": str(landed)}, timeout=TICK)
    time.sleep(2 * TICK)
    landed.touch()  # after its deadline: the shortage in the worker must not time it out

    def settled() -> bool:
        job.run(worker, pool.ranges[0], "us")
        return pool.wait([made.id], 0)[made.id] is not State.SENSING

    job.run(worker, pool.ranges[0], "us")
    assert worker.leases.suspects.why(pool.ranges[0], made.group_id) == Suspicion.OUT_OF_MEMORY
    until("it to settle", settled)
    assert pool.wait([made.id], 0)[made.id] is State.SUCCESS
