"""What processes tell each other of the failures of pokes outside of jobs."""

from typing import Any

import pytest

from sensorpool.errors import Unreachable
from sensorpool.leases.lease import Leases
from sensorpool.leases.outside_failures import OutsideFailures
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.states import Outcome
from sensorpool.model.values import Failing, Report, ShardRange, Told
from sensorpool.settle.infra_window import OutsideWindow
from sensorpool.worker.told_failures import ToldFailures
from tests.support.builders import START, due_group, fact

RANGE, INTERVAL, WINDOW = ShardRange(0, 10), 60_000, 600.0
FAILING = Failing(START - INTERVAL, START)


class Telling:
    """A process that tells, on a Redis that may be away."""

    def __init__(self, kept: OutsideFailures) -> None:
        self.kept = kept
        self._told = ToldFailures(kept)

    def pokes(self, outcome: Outcome, at: int) -> Told | None:
        """See a poke of the group; return what had been told before, None where Redis did not answer."""
        by_range = {RANGE: [Report(due_group(1), 0.0, outcome)]}
        told = self._told.of(by_range)
        window = OutsideWindow(WINDOW, told[RANGE].failing if told else {})
        window.judge(fact(outcome, began_at=at), INTERVAL)
        self._told.tell(by_range, told, window)
        return told.get(RANGE)


@pytest.fixture
def telling(client: Any) -> Telling:
    return Telling(Leases(RedisStore(client), lease_ttl=30).outside_failures)


def away(*_: Any) -> Any:
    raise Unreachable("Redis does not answer")


@pytest.fixture
def untold(telling: Telling, monkeypatch: pytest.MonkeyPatch) -> Telling:
    """One that has seen an answer of a failing group, and could not tell it."""
    telling.kept.keep(RANGE, {1: FAILING})
    with monkeypatch.context() as patched:
        patched.setattr(OutsideFailures, "keep", away)
        with pytest.raises(Unreachable):
            telling.pokes(Outcome.NOT_LANDED, START + INTERVAL)
    assert telling.kept.of(RANGE, [1]).failing == {1: FAILING}
    return telling


def test_an_answer_that_could_not_be_told_ends_the_failure_all_the_same(untold: Telling) -> None:
    assert untold.pokes(Outcome.INFRA_FAILURE, START + 2 * INTERVAL) == Told({}, {})
    assert untold.kept.of(RANGE, [1]).failing[1].since == START + 2 * INTERVAL


def test_an_answer_that_could_not_be_told_is_told_with_the_next_one(untold: Telling) -> None:
    untold.pokes(Outcome.NOT_LANDED, START + 2 * INTERVAL)
    assert untold.kept.of(RANGE, [1]) == Told({}, {1: START + INTERVAL})


def test_where_redis_does_not_say_what_it_knows_it_is_told_of_answers_alone(
    telling: Telling, monkeypatch: pytest.MonkeyPatch
) -> None:
    telling.kept.keep(RANGE, {1: FAILING})
    with monkeypatch.context() as patched:
        patched.setattr(OutsideFailures, "of", away)
        assert telling.pokes(Outcome.INFRA_FAILURE, START + INTERVAL) is None
    assert telling.kept.of(RANGE, [1]).failing == {1: FAILING}, "it began no later"
    with monkeypatch.context() as patched:
        patched.setattr(OutsideFailures, "of", away)
        telling.pokes(Outcome.NOT_LANDED, START + INTERVAL)
    assert telling.kept.of(RANGE, [1]) == Told({}, {1: START + INTERVAL})


def test_thousands_of_answers_are_told(client: Any) -> None:
    kept = Leases(RedisStore(client), lease_ttl=30).outside_failures
    groups = range(1, 10_002)
    kept.keep(RANGE, dict.fromkeys(groups, FAILING))
    process, by_range = ToldFailures(kept), {RANGE: [Report(due_group(n), 0.0, Outcome.NOT_LANDED) for n in groups]}
    told = process.of(by_range)
    window = OutsideWindow(WINDOW, told[RANGE].failing)
    for group_id in groups:
        window.end(group_id, START + INTERVAL)
    process.tell(by_range, told, window)
    assert not kept.of(RANGE, groups).failing


def test_answers_of_all_ranges_are_told_later(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, other = Leases(RedisStore(client), lease_ttl=30).outside_failures, ShardRange(10, 20)
    by_range = {RANGE: [Report(due_group(1), 0.0, Outcome.LANDED)], other: [Report(due_group(2), 0.0, Outcome.LANDED)]}
    process, window = ToldFailures(kept), OutsideWindow(WINDOW, {})
    window.end(1, START)
    window.end(2, START)
    with monkeypatch.context() as patched:
        patched.setattr(OutsideFailures, "keep", away)
        with pytest.raises(Unreachable):
            process.tell(by_range, {}, window)
    process.tell(by_range, {}, OutsideWindow(WINDOW, {}))
    assert (kept.of(RANGE, [1]).answered, kept.of(other, [2]).answered) == ({1: START}, {2: START})


def test_a_healthy_group_costs_redis_nothing(telling: Telling, client: Any) -> None:
    telling.pokes(Outcome.NOT_LANDED, START)
    assert client.keys("*") == []
