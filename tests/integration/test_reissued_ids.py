"""After a restore of an older backup ids are given out again: an instance as it was returned is not another's."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from harness.until import PATIENCE
from sensorpool import Instance, Pool
from sensorpool.errors import SensorpoolError, Unknown
from sensorpool.model.states import State

SCRIPTED = "harness.scripted.ScriptedSensor"


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    return make_pool(sensors_enabled=SCRIPTED)


def register(pool: Pool, run_id: str, name: str) -> Instance:
    context = {"folder": "/nowhere", "name": name}
    return pool.register(SCRIPTED, context, dag_id="d", task_id="t", run_id=run_id, timeout=3600)


def restore(pool: Pool) -> None:
    """Restore a backup of before the first registration."""
    with pool.database.engine.begin() as connection:
        for table in ("sensor_instance", "poke_group", "sqlite_sequence"):
            connection.execute(text(f"DELETE FROM {table}"))


# another condition, and the same one for another task
@pytest.mark.parametrize("name", ["other", "mine"])
@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("ask", [lambda pool, mine: pool.wait([mine], 0), Pool.cancel], ids=["wait", "cancel"])
def test_the_instance_of_another_is_neither_waited_for_nor_cancelled(
    pool: Pool, name: str, settled: bool, ask: Callable[..., Any]
) -> None:
    mine = register(pool, "mine", "mine")
    restore(pool)
    other = register(pool, "other", name)
    assert other.id == mine.id, "the fault has not struck"
    if settled:
        pool.cancel(other)
    if settled or ask is Pool.cancel:  # a wait looks at the key at its end
        with pytest.raises(Unknown, match=f"there is no instance {mine.id} of .*'mine'.* any more"):
            ask(pool, mine)
    assert pool.wait([other.id], 0) == pool.wait(other, 0) == {other.id: State.CANCELLED if settled else State.SENSING}


def test_two_instances_of_one_id_are_not_waited_for(pool: Pool) -> None:
    mine = register(pool, "mine", "mine")
    restore(pool)
    other = register(pool, "other", "other")
    with pytest.raises(Unknown, match="'mine'"):
        pool.wait([mine, other.id, other], 0)


def test_a_wait_under_way_ends_with_the_restore(pool: Pool) -> None:
    mine = register(pool, "mine", "mine")
    looked, caught = threading.Event(), list[SensorpoolError]()
    read = pool.database.read

    def wait() -> None:
        try:
            pool.wait([mine], PATIENCE)
        except SensorpoolError as error:
            caught.append(error)

    def looking(*arguments: Any) -> Any:
        answer = read(*arguments)
        looked.set()
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool.database, "read", looking)
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert looked.wait(PATIENCE)
    restore(pool)
    pool.cancel(register(pool, "other", "other"))
    waiting.join(PATIENCE)
    assert [type(error) for error in caught] == [Unknown]
