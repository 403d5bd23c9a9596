"""Each way to a terminal state delivers and counts committed results, and no others."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from sensorpool import Pool, Settings
from sensorpool.errors import Unreachable
from sensorpool.model.states import Ending, Outcome, State
from sensorpool.model.values import Fact, Flushed, Registered
from sensorpool.settle.settler import Settler
from sensorpool.store.migrate import upgrade
from sensorpool.store.schema import sensor_instance

SENSOR = "sensorpool.sensors.TimeSensor"
CONTEXT = {"target_time": "2100-01-01T00:00:00Z"}
REASON = "enough"


class Settling:
    """A settler on a database with one instance, and the flushes that it delivered and observed."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.delivered: list[Flushed] = []
        self.observed: list[Flushed] = []
        self.unsettled: list[int] = []
        self.settler = Settler(
            pool.database, self.delivered.append, self.observed.append, self.unsettled.append, tick_ms=5_000
        )
        pool.settler = self.settler
        self.instance: Registered = pool.register(SENSOR, CONTEXT, dag_id="d", task_id="t", run_id="r")

    def settle(self) -> int:
        """Settle the instance, whose condition has landed."""
        return self.settler.settle([Fact(self.instance.group_id, 1, 10**13, Outcome.LANDED)])

    def cancel(self) -> int:
        """Cancel it."""
        return self.settler.cancel({self.instance.id: REASON})

    def hand_back(self) -> int:
        """Hand it back."""
        return self.settler.hand_back({self.instance.id: REASON})

    def supersede(self) -> int:
        """Register a higher try, which supersedes it."""
        self.pool.register(SENSOR, CONTEXT, dag_id="d", task_id="t", run_id="r", try_number=2)
        return 1

    @property
    def row(self) -> Any:
        """The instance's row."""
        with self.pool.database.engine.connect() as connection:
            return connection.execute(sensor_instance.select().where(sensor_instance.c.id == self.instance.id)).one()

    def break_commits(self) -> None:
        """Have each commit fail from now on, as on a lost connection."""

        self.refuse(Unreachable("the database does not answer"))

    def refuse(self, error: Exception) -> None:
        """Have each transaction fail from now on."""

        def fails(*_: Any, **__: Any) -> None:
            raise error

        self.pool.database.transaction = fails  # type: ignore[assignment]


WAYS: dict[str, tuple[Callable[[Settling], int], State, Ending]] = {
    "settle": (Settling.settle, State.SUCCESS, Ending.LANDED),
    "cancel": (Settling.cancel, State.CANCELLED, Ending.CANCELLED),
    "hand back": (Settling.hand_back, State.CANCELLED, Ending.HANDED_BACK),
    "supersede": (Settling.supersede, State.CANCELLED, Ending.CANCELLED),
}


@pytest.fixture
def settling(tmp_path: Path) -> Iterator[Settling]:
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    upgrade(url)
    pool = Pool(Settings.load(database_url=url))
    yield Settling(pool)
    pool.close()


@pytest.mark.parametrize("name", WAYS)
def test_each_way_delivers_and_counts(settling: Settling, name: str) -> None:
    way, state, ending = WAYS[name]
    assert way(settling) == 1
    assert settling.delivered == settling.observed
    [flushed] = settling.delivered
    [settled] = flushed.settled
    assert (settled.id, settled.state, settled.ending) == (settling.instance.id, state, ending)
    assert flushed.outbox_id is not None, "rescue sends it, should it not be delivered"
    assert (settling.row.state, settling.row.ending) == (state, ending)


@pytest.mark.parametrize("name", WAYS)
def test_what_is_not_committed_is_neither_delivered_nor_counted(settling: Settling, name: str) -> None:
    settling.break_commits()
    with pytest.raises(Unreachable):
        WAYS[name][0](settling)
    assert (settling.delivered, settling.observed) == ([], [])
    assert settling.row.state == State.SENSING


def test_what_has_settled_before_is_not_told_again(settling: Settling) -> None:
    assert settling.cancel() == 1
    assert (settling.cancel(), settling.settle()) == (0, 0)
    assert [len(flushed.settled) for flushed in settling.observed] == [1, 0, 0]


def test_a_group_whose_result_cannot_be_written_is_counted_as_unsettled(settling: Settling) -> None:
    settling.refuse(OperationalError("UPDATE", {}, Exception("disk is full")))
    done = settling.settler.settle([Fact(settling.instance.group_id, 1, 10**13, Outcome.LANDED)])
    assert (done, settling.unsettled) == (0, [1])
    assert [flushed.outbox_id for flushed in settling.delivered] == [None]


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_process_that_was_told_to_end_settles_only_what_its_end_cannot_bring_about(
    settling: Settling, outcome: Outcome
) -> None:
    is_ending = True
    pool = settling.pool
    settler = Settler(pool.database, lambda _: None, is_ending=lambda: is_ending, tick_ms=5_000)
    facts = [Fact(settling.instance.group_id, 1, 10**13, outcome, "why")]
    assert settler.settle(facts) == (outcome in {Outcome.LANDED, Outcome.SKIP})
    is_ending = False
    assert settler.settle(facts) == (outcome not in {Outcome.LANDED, Outcome.SKIP})
