"""What an outage of a backend writes: the troubles of its groups, once at its begin and once at its end."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any, ClassVar

import pytest
from sqlalchemy import event

from sensorpool import Pool, Settings
from sensorpool.errors import InfraFailure
from sensorpool.store import troubles
from sensorpool.testing import Clock
from sensorpool.worker.context import Worker

GROUPS = 500
TICK, WINDOW = 60.0, 86_400.0  # seconds; the tick is so long that one job pokes all groups on a busy machine


class Asks:
    """Asks a backend that is away, or answers, as the test says. Each failure has another reason."""

    is_away: ClassVar[bool] = False
    pokes: ClassVar[Counter[str]] = Counter()

    def __init__(self, name: str) -> None:
        self.name = name

    def poke(self, context: Any) -> bool:
        Asks.pokes[self.name] += 1
        if Asks.is_away:
            raise InfraFailure(f"refused for the {Asks.pokes[self.name]}. time")
        return False


class Place:
    """A pool of one range, and two processes that take its jobs in turn.

    :param backends: how many backends its groups have.
    """

    def __init__(self, pool: Pool, workers: list[Worker], backends: int) -> None:
        self.pool, self.workers, self.clock, self.jobs = pool, workers, Clock(), 0
        for database in (pool.database, *(worker.database for worker in workers)):
            database._clock = self.clock
        each = {"sensor": f"{__name__}.Asks"}
        names = [{"poke_context": {"name": f"g{n}"}, "backend": f"b{n % backends}"} for n in range(GROUPS)]
        pool.register_many([each | name for name in names], try_out=False)
        self.statements: list[str] = []
        self.rows: Counter[str] = Counter()
        for worker in workers:
            event.listen(worker.database.engine, "after_cursor_execute", self._count)

    def _count(self, _: Any, cursor: Any, statement: str, *__: Any) -> None:
        verb = statement.split(maxsplit=1)[0]
        if "group_trouble" in statement and verb != "SELECT":
            self.statements.append(verb)
            self.rows[verb] += cursor.rowcount

    def written(self) -> tuple[list[str], dict[str, int]]:
        """The statements that have changed troubles since the last call, and how many rows each kind of them did."""
        written = self.statements[:], {verb: number for verb, number in self.rows.items() if number}
        self.statements.clear()
        self.rows.clear()
        return written

    def interval(self) -> None:
        """Have an interval pass."""
        self.clock.advance(TICK)
        self.workers[self.jobs % 2].run_job(self.pool.ranges[0], f"job{self.jobs}")
        self.jobs += 1

    def in_trouble(self) -> int:
        return len(self.pool.database.read(troubles.of_range, self.pool.ranges[0]))


@pytest.fixture
def make_place(
    each_database: str, make_worker: Callable[[Settings], Worker], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[int], Place]]:
    monkeypatch.setattr(Asks, "is_away", False)
    Asks.pokes.clear()

    def make(backends: int) -> Place:
        settings = {"tick": TICK, "poke_interval": TICK, "infra_failure_window": WINDOW, "timeout": 1e6}
        ours = Settings.load(database_url=each_database, sensors_enabled=f"{__name__}.Asks", shards=1, **settings)
        pool = made.enter_context(closing(Pool(ours)))
        return Place(pool, [make_worker(ours) for _ in range(2)], backends)

    with ExitStack() as made:
        yield make


def test_the_troubles_of_an_outage_are_written_once_and_deleted_once(
    make_place: Callable[[int], Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make_place(GROUPS)  # no backend is known as away: each group is poked in each interval
    for _ in range(3):
        place.interval()
    assert place.written() == ([], {}), "groups that do well have no rows"
    monkeypatch.setattr(Asks, "is_away", True)
    place.interval()
    assert place.written() == (["DELETE", "INSERT"], {"INSERT": GROUPS})
    poked = Asks.pokes.total()
    for _ in range(6):
        place.interval()
    assert Asks.pokes.total() == poked + 6 * GROUPS, "each was poked, and failed for another reason"
    assert place.written() == ([], {})
    monkeypatch.setattr(Asks, "is_away", False)
    place.interval()
    assert place.written() == (["DELETE"], {"DELETE": GROUPS})
    place.interval()
    assert place.written() == ([], {})
    assert place.in_trouble() == 0


def test_where_the_backend_is_known_as_away_only_groups_that_have_met_it_are_written(
    make_place: Callable[[int], Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make_place(1)
    for _ in range(2):
        place.interval()
    monkeypatch.setattr(Asks, "is_away", True)
    for _ in range(6):
        place.interval()
    assert place.written()[1] == {"INSERT": place.in_trouble()}
    assert 10 <= place.in_trouble() <= GROUPS
