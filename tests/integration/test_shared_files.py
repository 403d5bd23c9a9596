"""Files that a neighbour has used up: a poke that meets the shortage is made again, in a process that has some."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.until import until
from sensorpool import Pool
from sensorpool.admin.status import status
from sensorpool.model.states import State
from sensorpool.worker.context import Worker
from tests.support.troubled import trouble_of

TICK = 0.2


class Meets:
    """Lands, unless a file says that this process is short of files."""

    def __init__(self, short: str) -> None:
        self.short = Path(short)

    def poke(self, context: Any) -> Any:
        if self.short.exists():
            raise OSError(errno.EMFILE, "Too many open files")
        return True


class MeetsAsync(Meets):
    """Does the same on the event loop."""

    async def poke(self, context: Any) -> Any:
        return Meets.poke(self, context)


@pytest.mark.parametrize("cls", [Meets, MeetsAsync])
def test_a_poke_that_finds_no_file_is_made_again_and_its_process_is_replaced(
    make_pool: Callable[..., Pool], make_worker: Callable[..., Worker], tmp_path: Path, cls: type
) -> None:
    path = f"{__name__}.{cls.__name__}"
    pool = make_pool(sensors_enabled=[path], shards=1, tick=TICK, poke_interval=TICK)
    short, full, spare = tmp_path / "short", make_worker(pool.settings), make_worker(pool.settings)
    short.touch()
    made = pool.register(path, {"short": str(short)})

    def settled_by(worker: Worker) -> bool:
        worker.run_job(pool.ranges[0], "us")
        return pool.wait([made.id], 0)[made.id] is not State.SENSING

    until("a poke", lambda: settled_by(full) or full.wears_out())
    assert not trouble_of(pool.database, made.group_id).is_isolated, "no group is to blame"
    assert status(pool)["away"] == [], "no backend is either"
    short.unlink()
    until("it to settle", lambda: settled_by(spare))
    assert pool.wait([made.id], 0)[made.id] is State.SUCCESS
    assert not spare.wears_out()
