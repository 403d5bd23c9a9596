"""The reports of a job: counted, judged, and kept until they are settled; and groups that are left to others."""

from typing import Any

import pytest

from sensorpool import Settings
from sensorpool.leases.range_state import RangeState
from sensorpool.model.states import Outcome
from sensorpool.model.unsettled import MOST
from sensorpool.model.values import Fact, Failing, JobResult, Report, Settlement, Told, Unsettled
from sensorpool.settle.infra_window import RangeFailures
from sensorpool.worker.load import Moment
from sensorpool.worker.outcomes import Outcomes
from sensorpool.worker.stranded import Stranded, forget_poked_apart
from tests.support.builders import START, due_group

BEGAN = 100.0  # the load, by the monotonic clock
DEADLINE = START + 1_000
SETTINGS = Settings.load(infra_failure_window=60)


class Seen(Outcomes):
    """Outcomes of a load at `START`."""

    def __init__(
        self,
        *,
        trusted: bool = True,
        infra: RangeFailures | None = None,
        state: RangeState | None = None,
        unsettled: dict[int, Unsettled] | None = None,
    ) -> None:
        self.result = JobResult()
        infra = RangeFailures(60, {}) if infra is None else infra
        stranded = Stranded(state or RangeState(), SETTINGS, trusted=trusted)
        known = {} if unsettled is None else unsettled
        moment = Moment(START, BEGAN, trusted)
        super().__init__(moment, self.result, infra, stranded, known, overrun_limit=3)


def report(outcome: Outcome, group_id: int = 1, after: float = 0.5, **group: Any) -> Report:
    """Return the report of a poke that began so many seconds after the load."""
    return Report(due_group(group_id, **group), BEGAN + after, outcome, "why")


def kept(seen: Outcomes) -> list[tuple[int, Outcome, int]]:
    """Return the facts to be settled: group, outcome, and when the poke began."""
    return [(fact.group_id, fact.outcome, fact.began_at - START) for fact in seen.hand_over()]


def test_what_found_nothing_is_counted_and_no_fact() -> None:
    seen = Seen()
    exceptional = seen.take([report(Outcome.NOT_LANDED, members=3), report(Outcome.NOT_LANDED, 2)])
    assert exceptional == ([], [])
    assert kept(seen) == []
    assert (seen.result.poked, seen.result.saved, seen.result.landed, seen.result.errors) == (2, 2, 0, 0)
    assert (len(seen.record), seen.last_began) == (2, BEGAN + 0.5)


@pytest.mark.parametrize(("after", "trusted", "facts"), [(0.999, True, 0), (1.0, True, 1), (1.0, False, 0)])
def test_a_deadline_counts_from_its_moment_on_and_by_a_trusted_clock(after: float, trusted: bool, facts: int) -> None:
    seen = Seen(trusted=trusted)
    seen.take([report(Outcome.NOT_LANDED, after=after, next_deadline=DEADLINE)])
    assert len(kept(seen)) == facts


def test_a_fact_says_when_its_poke_began_by_the_database() -> None:
    seen = Seen()
    seen.take([report(Outcome.LANDED, after=2.25), report(Outcome.POKE_ERROR, 2, after=3.0)])
    assert kept(seen) == [(1, Outcome.LANDED, 2_250), (2, Outcome.POKE_ERROR, 3_000)]
    assert (seen.result.landed, seen.result.errors) == (1, 1)
    assert kept(seen) == [], "once"


def test_exceptional_reports_are_told_apart_and_none_of_them_ends_anything_yet() -> None:
    seen = Seen()
    reports = [report(Outcome.POKE_TIMEOUT, 1), report(Outcome.CANNOT_POKE, 2)]
    assert seen.take(reports) == ([reports[0]], [reports[1]])
    assert kept(seen) == []
    assert seen.result.extra == {"not_here": 1}


@pytest.mark.parametrize(("in_a_row", "facts"), [(0, 0), (2, 0), (3, 1), (4, 1)])
def test_overruns_count_once_there_are_enough_in_a_row(in_a_row: int, facts: int) -> None:
    seen = Seen()
    seen.take_overruns([report(Outcome.POKE_TIMEOUT)], {1: in_a_row})
    found = seen.hand_over()
    assert len(found) == facts
    assert all(f"{in_a_row} times in a row" in str(fact.reason) for fact in found)
    assert seen.result.errors == 1


def test_an_overrun_after_the_deadline_counts_as_a_poke_that_found_nothing() -> None:
    seen = Seen()
    seen.take_overruns([report(Outcome.POKE_TIMEOUT, after=1.5, next_deadline=DEADLINE)], {})
    assert kept(seen) == [(1, Outcome.POKE_TIMEOUT, 1_500)]


def test_an_overrun_of_a_call_for_many_ends_no_group() -> None:
    seen = Seen()
    overran = report(Outcome.POKE_TIMEOUT, after=1.5, next_deadline=DEADLINE)._replace(of_many=True)
    assert seen.take([overran]) == ([overran], [])
    seen.take_overruns([overran], {1: 3})
    assert kept(seen) == []
    assert seen.result.errors == 1


def test_a_failure_of_the_infrastructure_is_retried_for_its_window_and_a_poke_that_answers_ends_it() -> None:
    infra = RangeFailures(60, {1: START - 60_000, 2: START, 3: START - 60_000})
    seen = Seen(infra=infra)
    seen.take(
        [report(Outcome.INFRA_FAILURE, each, registered_at=1) for each in (1, 2)] + [report(Outcome.NOT_LANDED, 3)]
    )
    assert kept(seen) == [(1, Outcome.POKE_ERROR, 500)]
    assert infra.since == {1: START + 500 - 54_000, 2: START}, "who came late to the first is looked at again in 6 s"


def test_a_failure_that_pokes_outside_of_jobs_have_seen_goes_on_in_the_job() -> None:
    told = Told({1: Failing(START - 30_000, START - 30_000)}, {})
    seen = Seen(infra=(infra := RangeFailures(60, {}, told)))
    seen.take([report(Outcome.NOT_LANDED, 2), report(Outcome.INFRA_FAILURE, 1, registered_at=1)])
    assert infra.since == {1: START - 30_000}


# results that could not be written


def test_a_group_is_unsettled_until_its_result_is_written() -> None:
    seen = Seen(unsettled=(unsettled := {7: Unsettled(START, "disk full")}))
    facts = [Fact(7, 1, START, Outcome.LANDED), Fact(8, 1, START, Outcome.LANDED)]
    seen.settled(facts, Settlement(0, {8: Unsettled(START, "disk full")}))
    assert list(unsettled) == [8]
    assert seen.written == {7}
    seen.settled(facts, Settlement(1, {7: Unsettled(START, "again")}))
    assert list(unsettled) == [7]
    assert seen.written == {8}
    assert seen.result.settled == 1
    assert seen.result.extra == {"unsettled": 2}


def test_a_poke_that_finds_nothing_leaves_no_result_to_be_written() -> None:
    seen = Seen(unsettled=(unsettled := {7: Unsettled(START, "disk full")}))
    seen.take([report(Outcome.NOT_LANDED, 7)])
    assert (unsettled, seen.written) == ({}, {7})


def test_no_more_groups_than_so_many_are_kept_in_mind() -> None:
    seen = Seen(unsettled=(unsettled := {each: Unsettled(START, "") for each in range(MOST)}))
    facts = [Fact(group_id, 1, START, Outcome.LANDED) for group_id in (0, MOST)]
    seen.settled(facts, Settlement(0, {MOST: Unsettled(START, "new"), 0: Unsettled(START, "known")}))
    assert len(unsettled) == MOST
    assert unsettled[0].cause == "known"


# groups that are left to others


def test_a_group_is_left_to_others_until_they_have_had_their_turn() -> None:
    state = RangeState(stranded={1: START - 30_000})
    stranded = Stranded(state, SETTINGS, trusted=True)
    cannot = report(Outcome.CANNOT_POKE, registered_at=START - 100_000, next_deadline=START - 20_000)
    assert stranded.leave(cannot, START) is not None, "its deadline has passed, and the turn of the others too"
    assert stranded.hand_over([], []) == 0.0
    assert state.stranded == {1: START - 30_000}, "since the first process could not"


def test_no_group_ends_for_want_of_a_process_by_a_clock_that_is_not_trusted() -> None:
    state = RangeState(stranded={1: 1})
    stranded = Stranded(state, SETTINGS, trusted=False)
    assert stranded.leave(report(Outcome.CANNOT_POKE, registered_at=1), START) is None
    assert stranded.hand_over([], []) is not None


def test_what_was_poked_is_no_longer_stranded_and_the_range_is_passed_on_anew() -> None:
    state = RangeState(stranded={1: START, 2: START, 3: START}, passes=5)
    assert Stranded(state, SETTINGS, trusted=True).hand_over([2], [3]) == 0.0
    assert (state.stranded, state.passes) == ({2: START, 3: START}, 1)
    assert Stranded(state, SETTINGS, trusted=True).hand_over([], [2, 3]) is None, "this process can poke them"
    assert Stranded(RangeState(), SETTINGS, trusted=True).hand_over([], []) is None


def test_a_poke_apart_counts_unless_the_group_was_stranded_after_it() -> None:
    state = RangeState(last=START, left=[1, 2, 3], stranded={1: START, 2: START + 10, 3: START - 10})
    forget_poked_apart(state, {1: START, 2: START + 9, 3: START - 1, 4: START})
    assert state.stranded == {2: START + 10}
    assert state.left == [2, 3], "group 3 was poked before the last load: it is due again"
