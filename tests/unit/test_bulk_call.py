"""Many contexts in one call: one answer each, in order, and one bad context costs its own group."""

import gc
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from sensorpool.config.defaults import INFRA_FAILURES
from sensorpool.errors import ClassRefused
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report
from sensorpool.poke.answer import Answers
from sensorpool.poke.bulk_call import BulkCall
from sensorpool.poke.classes import Classes, Way
from sensorpool.poke.loop_lane import LoopLane
from sensorpool.poke.slots import Slots
from sensorpool.poke.tools import PokeTools
from tests.support.builders import classpath, drive, in_order, one, outcomes
from tests.support.sensors import answering, many

LANDED, NOT_LANDED, ERROR, INFRA = (
    Outcome.LANDED,
    Outcome.NOT_LANDED,
    Outcome.POKE_ERROR,
    Outcome.INFRA_FAILURE,
)


@pytest.fixture(autouse=True)
def no_calls() -> None:
    """Forget the calls of other tests."""
    many.Many.calls.clear()
    many.ManyChanges.changed.clear()


@pytest.fixture
def lane() -> Iterator[LoopLane]:
    """An event loop."""
    made = LoopLane(Slots(4), 60.0)
    yield made
    made.close()


def _ask(says: list[Any], cls: type = many.Many) -> list[Report]:
    tools = PokeTools(Classes([classpath(cls)]), Answers(INFRA_FAILURES), {})
    call = BulkCall([one(number, cls, tools, say=say) for number, say in enumerate(says, 1)], tools)
    reports = in_order(call.poke())
    assert [report.group.id for report in reports] == list(range(1, len(says) + 1)), "each has one"
    return reports


def _of(say: bool) -> Outcome:
    return LANDED if say else NOT_LANDED


def test_each_context_has_its_answer_in_order_from_one_call() -> None:
    reports = _ask([True, False, 0, "yes", None, True])
    assert [report.outcome for report in reports] == [LANDED, NOT_LANDED, NOT_LANDED, LANDED, NOT_LANDED, LANDED]
    assert len(many.Many.calls) == 1


def test_an_exception_is_the_answer_of_its_own_context() -> None:
    reports = _ask([True, "error", False, "error"])
    assert [report.outcome for report in reports] == [LANDED, ERROR, NOT_LANDED, ERROR]
    assert [report.reason for report in reports] == [None, "RuntimeError: this one"] * 2
    assert len(many.Many.calls) == 1


@pytest.mark.parametrize("size", [1, 2, 3, 8, 13])
def test_a_call_that_raises_is_halved_until_the_bad_context_stands_alone(size: int) -> None:
    for bad in range(size):
        many.Many.calls.clear()
        says: list[Any] = [bool(number % 2) for number in range(size)]
        says[bad] = "throw"
        reports = _ask(says)
        expected = [LANDED if say is True else NOT_LANDED for say in says]
        expected[bad] = ERROR
        assert [report.outcome for report in reports] == expected
        assert reports[bad].reason == "ValueError: one of them is bad"
        assert len(many.Many.calls) <= 2 * size.bit_length() + 1


def test_two_bad_contexts_cost_two_groups() -> None:
    reports = _ask(["throw", True, True, True, True, True, "throw", True])
    assert [report.group.id for report in reports if report.outcome is ERROR] == [1, 7]
    assert [report.outcome for report in reports].count(LANDED) == 6


@pytest.mark.parametrize("size", [1, 2, 3, 8, 13])
def test_a_context_whose_backend_is_away_costs_its_own_group(size: int) -> None:
    for away in range(size):
        many.Many.calls.clear()
        reports = _ask(["infra" if number == away else True for number in range(size)])
        assert [report.outcome for report in reports] == [INFRA if n == away else LANDED for n in range(size)]
        assert len(many.Many.calls) <= 2 * size.bit_length() + 1


def test_a_backend_that_is_away_for_all_is_asked_a_few_times() -> None:
    reports = _ask(["infra"] * 500)
    assert [report.outcome for report in reports] == [INFRA] * 500
    assert len(many.Many.calls) == 10


@pytest.mark.parametrize("size", [1, 5])
def test_a_wrong_number_of_answers_is_an_error_that_names_the_class(size: int) -> None:
    for report in _ask([True] * size, many.ManyTooFew):
        assert report.outcome is ERROR
        said = f"tests.support.sensors.many.ManyTooFew.poke_many gave {size - 1} answers to {size} contexts"
        assert report.reason == f"ValueError: {said}: give a list with one answer for each, in their order"


def test_no_answers_at_all_are_an_error_of_each() -> None:
    assert {report.outcome for report in _ask([True] * 4, many.ManyNothing)} == {ERROR}


@pytest.mark.parametrize("nested", [{}, {"days": {"first": 1, "parts": [0]}}], ids=["flat", "nested"])
@pytest.mark.parametrize("alone", [False, True], ids=["together", "alone"])
def test_a_call_that_changes_its_contexts_changes_no_later_call(alone: bool, nested: dict[str, Any]) -> None:
    tools = PokeTools(Classes([classpath(many.ManyChanges)]), Answers([]), {})
    says = [False] if alone else [False, True, False]
    units = [
        one(number, many.ManyChanges, tools, say=say, day="2026-11-23", **nested) for number, say in enumerate(says)
    ]
    for _ in range(3):
        reports = in_order(units[0].poke() if alone else BulkCall(units, tools).poke())
        assert [(report.outcome, report.reason) for report in reports] == [(_of(say), None) for say in says]
    assert len(many.ManyChanges.changed) == 3 * len(says)
    for left in many.ManyChanges.changed:
        assert left["day"] == date(2026, 11, 23)
        assert "days" not in left or left["days"] == {"parts": [0, 1]}


@pytest.mark.parametrize("nested", [{}, {"days": {"first": 1, "parts": [0]}}], ids=["flat", "nested"])
def test_a_halved_call_gets_unchanged_contexts(nested: dict[str, Any]) -> None:
    tools = PokeTools(Classes([classpath(many.ManyChanges)]), Answers([]), {})
    says = [False, "throw", True]
    units = [
        one(number, many.ManyChanges, tools, say=say, day="2026-11-23", **nested) for number, say in enumerate(says)
    ]
    reports = in_order(BulkCall(units, tools).poke())
    assert [report.outcome for report in reports] == [NOT_LANDED, ERROR, LANDED]
    assert reports[1].reason == "ValueError: one of them is bad"
    assert len(many.Many.calls) > 1


@pytest.mark.parametrize("kind", ["dict", "set", "str", "bytes"])
def test_answers_without_their_order_are_an_error(kind: str) -> None:
    """An iteration over such a value gives keys or letters, which are all true."""
    for report in _ask([kind, kind], many.ManyGives):
        assert report.outcome is ERROR
        said = f"poke_many gave a {kind} to 2 contexts: give a list with one answer for each, in their order"
        assert report.reason == f"ValueError: tests.support.sensors.many.ManyGives.{said}"


def test_answers_may_be_made_one_by_one() -> None:
    assert [report.outcome for report in _ask([True, False], many.ManyYields)] == [LANDED, NOT_LANDED]


def test_an_async_poke_many_is_awaited() -> None:
    assert [report.outcome for report in _ask([True, False], many.ManyAsync)] == [LANDED, NOT_LANDED]


def test_an_answer_that_was_not_awaited_is_an_error_of_its_own_context() -> None:
    reports = _ask([True, "coroutine", False], many.ManyForgets)
    assert [report.outcome for report in reports] == [LANDED, ERROR, NOT_LANDED]
    assert reports[1].reason == "TypeError: the poke returned a coroutine, which is no answer: await it"
    assert {report.outcome for report in _ask(["coroutine", "left out"], many.ManyForgets)} == {ERROR}
    gc.collect()


def _poked(found: type, **context: Any) -> Report:
    [report] = one(1, found, **context).poke()
    return report


@pytest.mark.parametrize("says", [True, False, None], ids=repr)
@pytest.mark.parametrize("cls", [answering.Decorated, answering.Awaitable], ids=lambda cls: cls.__name__)
def test_a_coroutine_of_a_poke_that_hides_it_is_awaited(cls: type, says: Any) -> None:
    assert _poked(cls, say=says).outcome is (LANDED if says else NOT_LANDED)


def test_what_it_raises_is_an_error_of_its_own() -> None:
    assert _poked(answering.Decorated, say="error").reason == "ValueError: as told"


def test_its_class_is_poked_on_the_event_loop_from_then_on(lane: LoopLane) -> None:
    """There it is constructed again, because its clients belong to their loop."""
    tools = PokeTools(Classes([classpath(answering.DecoratedHome)]), Answers([]), {})
    work = one(1, answering.DecoratedHome, tools)
    assert tools.classes.find(work.op_classpath).way is Way.SYNC
    assert outcomes(work.poke()) == {1: NOT_LANDED}
    assert tools.classes.find(work.op_classpath).way is Way.ASYNC
    for _ in range(2):
        lane.put([work])
        [report] = drive(lane, lambda seen: seen, "it is poked")
        assert (report.outcome, report.reason) == (NOT_LANDED, None)
    assert len(set(answering.DecoratedHome.loops)) == 2


@pytest.mark.parametrize(
    "cls", [answering.Yields, answering.AsyncYields, answering.Forgets], ids=lambda cls: cls.__name__
)
def test_a_poke_that_returns_no_answer_is_an_error(cls: type, lane: LoopLane) -> None:
    if classpath(cls).endswith("Forgets"):
        lane.put([one(1, cls)])
        [report] = drive(lane, lambda seen: seen, "it is poked")
    else:
        report = _poked(cls)
    assert report.outcome is ERROR
    assert "which is no answer" in str(report.reason)
    gc.collect()


def test_a_poke_alone_of_a_class_that_answers_many_asks_with_one_context() -> None:
    [report] = one(1, many.Many, say=True).poke()
    assert report.outcome is LANDED
    assert many.Many.calls == [[True]]


@pytest.mark.parametrize("many", [False, True])
def test_a_class_that_is_not_enabled_is_left_to_others_and_is_not_imported(many: bool) -> None:
    tools = PokeTools(Classes(["other.Class"]), Answers([]), {})
    ones = [one(number, answering.Lands, tools) for number in (1, 2)]
    reports = in_order(BulkCall(ones, tools).poke() if many else ones[0].poke())
    assert {report.outcome for report in reports} == {Outcome.CANNOT_POKE}
    assert "tests.support.sensors.answering.Lands is not enabled" in str(reports[0].reason)
    with pytest.raises(ClassRefused, match="is not enabled"):
        tools.classes.find("os.system")


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_a_poke_cannot_raise_its_way_out(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def poke(self: Any, context: Any) -> Any:
        raise error

    monkeypatch.setattr(answering.Lands, "poke", poke)
    [report] = one(1, answering.Lands).poke()
    assert report.outcome is Outcome.EXITED
    assert str(report.reason).startswith(type(error).__name__)


@pytest.mark.parametrize("size", [1, 2])
def test_all_of_a_call_that_overran_are_reported(size: int) -> None:
    """Of many, no group is known to be the one that hangs."""
    tools = PokeTools(Classes([]), Answers([]), {})
    work = BulkCall([one(number, many.Many, tools, say=True) for number in range(1, size + 1)], tools)
    assert [group.id for group in work.groups] == list(range(1, size + 1))
    reports = in_order(work.overran(1.0))
    assert [(report.outcome, report.of_many) for report in reports] == [(Outcome.POKE_TIMEOUT, size > 1)] * size
    rest = "" if size == 1 else ", in one call with 1 more"
    assert {report.reason for report in reports} == {f"the poke took longer than its limit of 1 s{rest}"}
