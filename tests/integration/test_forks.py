"""A pool that was used before a fork works in the children, and still in the parent."""

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.model.values import Flushed, shard_ranges
from sensorpool.publish.publisher import Publisher
from sensorpool.store.migrate import upgrade

PATH = "sensorpool.sensors.PathSensor"
CHILDREN, EACH = 4, 15


@pytest.fixture(params=["sqlite", "postgres", pytest.param("mariadb", marks=pytest.mark.mariadb)])
def used(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pool]:
    """A pool that was used, on each kind of database."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'pool.db'}"
        upgrade(url)
    else:
        url = request.getfixturevalue(f"{request.param}_database")
    made = Pool(Settings.load(database_url=url, redis_url="memory://"))
    made.register(PATH, {"path": "/before"})
    yield made
    made.close()


def fork(folder: Path, act: Callable[[], object]) -> int:
    """Run a function in a child, which writes down its result."""
    if (pid := os.fork()) != 0:
        return pid
    said = folder / f"{os.getpid()}.part"
    try:
        act()
        said.write_text("ok")
    except BaseException:
        said.write_text(traceback.format_exc())
    said.rename(said.with_suffix(".said"))
    os._exit(0)


def ends(folder: Path, pids: list[int]) -> list[str]:
    """Return the results of the children."""
    left = set(pids)
    try:
        until("the children to end", lambda: not left.difference_update(_ended(left)) and not left)
    finally:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return [(folder / f"{pid}.said").read_text() for pid in pids]


def _ended(pids: set[int]) -> set[int]:
    return {pid for pid in pids if os.waitpid(pid, os.WNOHANG)[0]}


def register_some(used: Pool, who: str) -> None:
    for number in range(EACH):
        keys = {"dag_id": "d", "task_id": who, "run_id": f"r{number}"}
        made = used.register(PATH, {"path": f"/{who}/{number}"}, **keys)
        assert (made.key.task_id, made.key.run_id) == (who, f"r{number}")
        used.wait([made.id], timeout=0)
    used.cancel(made.id)


def test_parent_and_children_register_at_once(used: Pool, tmp_path: Path) -> None:
    pids = [fork(tmp_path, lambda number=n: register_some(used, f"child{number}")) for n in range(CHILDREN)]  # type: ignore[misc]
    register_some(used, "parent")
    assert ends(tmp_path, pids) == ["ok"] * CHILDREN
    count = used.database.read(lambda c: c.exec_driver_sql("SELECT count(*) FROM sensor_instance").scalar_one())
    assert count == 1 + EACH * (CHILDREN + 1)


def test_what_hangs_in_the_parent_holds_no_child_up(used: Pool, tmp_path: Path) -> None:
    """Locks that another thread of the parent holds, and messages that wait there, do not belong to the child."""
    queue = used.outbox._results
    with used.publisher._lock, used.pool_id._lock, used.outbox._callbacks._sender._lock:

        def act() -> None:
            assert used.outbox.is_of_this_process
            assert used.outbox._results is not queue
            for lock in (used.publisher._lock, used.pool_id._lock, used.outbox._callbacks._sender._lock):
                assert lock.acquire(timeout=5)
                lock.release()
            used.outbox.deliver(Flushed())

        pids = [fork(tmp_path, act)]
    assert ends(tmp_path, pids) == ["ok"]


def test_children_have_connections_to_the_broker_of_their_own(redis_url: str, tmp_path: Path) -> None:
    publisher = Publisher(Settings.load(redis_url=redis_url))
    publisher.nudge(shard_ranges(4, 100)[0])
    made = publisher._made
    assert made is not None

    def act() -> None:
        publisher.nudge(shard_ranges(4, 100)[0])
        assert publisher._made is not made

    pids = [fork(tmp_path, act)]
    publisher.nudge(shard_ranges(4, 100)[0])
    assert ends(tmp_path, pids) == ["ok"]
    publisher.close()
