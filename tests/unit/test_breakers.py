"""Backends that are away: when they count as such, which groups wait, and which are poked all the same."""

import time
from collections.abc import Iterable
from typing import Any

import pytest

from harness.until import until
from sensorpool.errors import NotReady
from sensorpool.leases.outages import Outages
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.not_landed import not_landed
from sensorpool.model.outage import Kind
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report
from sensorpool.poke.answer import Answers
from sensorpool.poke.classes import Classes
from sensorpool.poke.tools import PokeTools
from sensorpool.poke.unit import PokeUnit
from sensorpool.worker import breakers as module
from sensorpool.worker.breakers import FEWEST, SHORT, Breakers
from tests.support.builders import START, due_group

PATH = "company.Sensor"
TOOLS = PokeTools(Classes([PATH]), Answers([]), {})


class World:
    """One process, which pokes groups of one class: of a connection, or of none."""

    def __init__(self, client: Any, **options: Any) -> None:
        self.units: dict[int, PokeUnit] = {}
        self.outages = Outages(RedisStore(client))
        given = {"wait": 5.0, "window": 7800.0} | options
        self.away = Breakers(self.outages, self.kinds, **given)

    def kinds(self, group_ids: Iterable[int]) -> list[tuple[str, str]]:
        return [(self.units[each].op_classpath, self.units[each].backend) for each in group_ids]

    def some(self, number: int, connection: str | None = "hive", **columns: Any) -> list[PokeUnit]:
        """Make groups."""
        first = len(self.units) + 1
        made = [PokeUnit(due_group(first + i, **columns), PATH, "{}", TOOLS, connection) for i in range(number)]
        self.units |= {unit.group.id: unit for unit in made}
        return made

    def see(self, units: Iterable[PokeUnit], outcome: Outcome, began: float = 1e12, **more: Any) -> None:
        """Report the same of each group."""
        self.away.take([Report(unit.group, began, outcome, "refused", **more) for unit in units])

    def go_away(self, connection: str | None = "hive") -> None:
        self.see(self.some(FEWEST, connection), Outcome.INFRA_FAILURE)

    def poked(self, units: list[PokeUnit], now: int = START, left: Iterable[int] = ()) -> list[int]:
        """Return which groups are poked."""
        return [unit.group.id for unit in self.away.sift(units, now, set(left)).units]


@pytest.fixture
def world(client: Any) -> World:
    """A process."""
    return World(client)


def test_nothing_is_sifted_while_all_answers(world: World) -> None:
    world.see(world.some(100), Outcome.NOT_LANDED)
    assert not world.away
    world.see(world.some(FEWEST - 1), Outcome.INFRA_FAILURE)
    assert not world.away


def test_ten_groups_in_a_row_without_an_answer_make_a_backend_go_away(world: World) -> None:
    units, others = world.some(5), world.some(5, "other")
    world.go_away()
    assert world.away.is_away("hive")
    assert world.poked(units + others) == [unit.group.id for unit in others]
    [seen] = world.outages.look()
    assert (seen.backend, seen.cause) == ("hive", "refused")


def test_an_answer_between_them_begins_the_count_anew(world: World) -> None:
    world.see(world.some(FEWEST - 1), Outcome.INFRA_FAILURE)
    world.see(world.some(1), Outcome.LANDED)
    world.see(world.some(FEWEST - 1), Outcome.INFRA_FAILURE)
    groups = [unit.group for unit in world.some(3)]
    world.away.take([], [not_landed(groups, [1.0] * len(groups), 0.1)])
    world.see(world.some(FEWEST - 1), Outcome.INFRA_FAILURE)
    assert not world.away


def test_one_group_that_fails_again_and_again_is_one(world: World) -> None:
    for _ in range(3):
        world.see(world.some(1) * FEWEST, Outcome.INFRA_FAILURE)
    assert not world.away


@pytest.mark.parametrize(("connection", "is_away"), [("hive", True), (None, False)], ids=["named", "its class"])
def test_a_class_that_hangs_is_no_backend_that_is_away(world: World, connection: str | None, is_away: bool) -> None:
    world.see(world.some(FEWEST, connection), Outcome.POKE_TIMEOUT)
    assert bool(world.away) is is_away


def test_a_class_without_a_backend_goes_away_by_its_failures(world: World) -> None:
    world.go_away(None)
    assert world.away.is_away(PATH)


@pytest.mark.parametrize("outcome", [Outcome.CRASHED, Outcome.CANNOT_POKE])
def test_what_a_process_lacks_says_nothing_of_a_backend(world: World, outcome: Outcome) -> None:
    world.see(world.some(2 * FEWEST), outcome)
    assert not world.away


def test_a_failure_of_the_pool_itself_says_nothing_of_a_backend(world: World) -> None:
    report = Answers([]).of_exception(due_group(), 0.0, NotReady("it is being loaded"))
    assert report.outcome is Outcome.INFRA_FAILURE
    world.see(world.some(2 * FEWEST), Outcome.INFRA_FAILURE, quiet_for=report.quiet_for)
    assert not world.away


def test_throttling_needs_one_poke_only(world: World) -> None:
    world.see(world.some(1), Outcome.INFRA_FAILURE, quiet_for=40.0)
    [seen] = world.outages.look()
    assert seen.kind is Kind.THROTTLED
    assert 39 < seen.ask_at - time.monotonic() <= 50
    assert world.poked(world.some(3)) == []


def test_an_answer_that_was_on_its_way_ends_no_throttling(world: World) -> None:
    world.see(world.some(1), Outcome.INFRA_FAILURE, quiet_for=40.0)
    world.see(world.some(1), Outcome.NOT_LANDED, began=0.0)
    assert world.away.is_away("hive")


def test_a_passed_deadline_is_poked(world: World) -> None:
    world.go_away()
    late, early, none = (
        *world.some(1, next_deadline=START),
        *world.some(1, next_deadline=START + 1),
        *world.some(1),
    )
    assert world.poked([late, early, none]) == [late.group.id]


def test_one_poke_asks_and_its_answer_ends_the_outage(client: Any) -> None:
    world = World(client, wait=0.01)
    world.go_away()
    units = world.some(20)
    asking = until("a turn", lambda: world.poked(units))
    assert len(asking) == 1
    world.see([world.units[asking[0]]], Outcome.NOT_LANDED)
    assert not world.away.is_away("hive")
    assert len(world.poked(units)) == len(units)


def test_one_poke_asks_and_fails_and_the_next_one_asks_later(client: Any) -> None:
    world = World(client, wait=0.01)
    world.go_away()
    for _ in range(3):
        [asking] = until("a turn", lambda: world.poked(world.some(2)))
        world.see([world.units[asking]], Outcome.INFRA_FAILURE)
        assert world.away.is_away("hive")


def test_another_process_knows_within_a_second(world: World, client: Any) -> None:
    other = World(client)
    other.away.look()
    world.go_away()
    units = other.some(2)

    def knows() -> bool:
        other.away.look()
        return other.away.is_away("hive")

    until("the other process to know", knows)
    assert other.poked(units) == []
    world.see(world.some(1), Outcome.NOT_LANDED)

    def hears() -> bool:
        other.away.look()
        return not other.away.is_away("hive")

    until("the other process to hear", hears)
    assert len(other.poked(units)) == 2


def test_after_the_window_of_failures_all_are_poked(client: Any) -> None:
    world = World(client, window=0.0)
    world.go_away()
    assert len(world.poked(world.some(5))) == 5


def test_a_long_interval_does_not_wait_for_its_next_period(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.go_away()
    short = world.some(1, poke_interval=SHORT)
    long = world.some(4, poke_interval=SHORT + 1)
    for place, unit in enumerate(long):
        unit.group = unit.group._replace(phase=place * 2**29)  # spread over the span
    sifted = world.away.sift([*short, *long], START, set())
    assert sifted.left == [unit.group.id for unit in long]
    assert dict(sifted.missed) == {"hive": 5}
    world.see(world.some(1), Outcome.NOT_LANDED)  # it answers again
    healed = module.time.monotonic()
    seen: list[list[int]] = []
    for after in (1.0, 20.0, 35.0, 50.0):
        monkeypatch.setattr(module.time, "monotonic", lambda after=after: healed + after)
        seen.append(world.poked(long, left=sifted.left))
    monkeypatch.undo()
    assert [len(each) for each in seen] == [1, 2, 3, 4]
    assert len(world.poked(long)) == 4  # due by their own interval


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is logged."""
    said: list[str] = []
    for level in ("warning", "info"):
        monkeypatch.setattr(module.log, level, lambda text, **fields: said.append(text))
    return said


def test_an_outage_is_one_line_of_log(client: Any, lines: list[str]) -> None:
    one, other = World(client), World(client)
    for _ in range(5):
        one.go_away()
        other.go_away()
    one.see(one.some(1), Outcome.NOT_LANDED)
    other.see(other.some(1), Outcome.NOT_LANDED)
    assert [line.split(";")[0] for line in lines] == ["a backend is away", "a backend answers again"]
