"""Many contexts in one call: one answer each, in order, and one bad context costs its own group."""

from typing import Any

import pytest

from sensorpool.errors import ClassRefused
from sensorpool.model import Report
from sensorpool.poke.answer import Answers
from sensorpool.poke.classes import Classes
from sensorpool.poke.works import Many, Means
from sensorpool.settings import INFRA_FAILURES
from sensorpool.states import Outcome
from tests.unit import scripted
from tests.unit.builders import classpath, one

LANDED, NOT_LANDED, ERROR, INFRA = (
    Outcome.LANDED,
    Outcome.NOT_LANDED,
    Outcome.POKE_ERROR,
    Outcome.INFRA_FAILURE,
)


@pytest.fixture(autouse=True)
def no_calls() -> None:
    """Forget the calls of other tests."""
    scripted.Many.calls.clear()


def _ask(says: list[Any], cls: type = scripted.Many) -> list[Report]:
    means = Means(Classes([classpath(cls)]), Answers(INFRA_FAILURES), {})
    reports = Many([one(number, cls, means, say=say) for number, say in enumerate(says, 1)], means).poke()
    assert [report.group.id for report in reports] == list(range(1, len(says) + 1)), "in order"
    return reports


def test_each_context_has_its_answer_in_order_from_one_call() -> None:
    reports = _ask([True, False, 0, "yes", None, True])
    assert [report.outcome for report in reports] == [LANDED, NOT_LANDED, NOT_LANDED, LANDED, NOT_LANDED, LANDED]
    assert len(scripted.Many.calls) == 1


def test_an_exception_is_the_answer_of_its_own_context() -> None:
    reports = _ask([True, "error", False, "error"])
    assert [report.outcome for report in reports] == [LANDED, ERROR, NOT_LANDED, ERROR]
    assert [report.reason for report in reports] == [None, "RuntimeError: this one"] * 2
    assert len(scripted.Many.calls) == 1


@pytest.mark.parametrize("size", [1, 2, 3, 8, 13])
def test_a_call_that_raises_is_halved_until_the_bad_context_stands_alone(size: int) -> None:
    for bad in range(size):
        scripted.Many.calls.clear()
        says: list[Any] = [bool(number % 2) for number in range(size)]
        says[bad] = "throw"
        reports = _ask(says)
        expected = [LANDED if say is True else NOT_LANDED for say in says]
        expected[bad] = ERROR
        assert [report.outcome for report in reports] == expected
        assert reports[bad].reason == "ValueError: one of them is bad"
        assert len(scripted.Many.calls) <= 2 * size.bit_length() + 1


def test_two_bad_contexts_cost_two_groups() -> None:
    reports = _ask(["throw", True, True, True, True, True, "throw", True])
    assert [report.group.id for report in reports if report.outcome is ERROR] == [1, 7]
    assert [report.outcome for report in reports].count(LANDED) == 6


def test_a_backend_that_is_away_is_asked_once() -> None:
    reports = _ask([True, "infra", True, True])
    assert [report.outcome for report in reports] == [INFRA] * 4
    assert len(scripted.Many.calls) == 1


@pytest.mark.parametrize("size", [1, 5])
def test_a_wrong_number_of_answers_is_an_error_that_names_the_class(size: int) -> None:
    for report in _ask([True] * size, scripted.ManyTooFew):
        assert report.outcome is ERROR
        said = f"tests.unit.scripted.ManyTooFew.poke_many gave {size - 1} answers to {size} contexts"
        assert report.reason == f"ValueError: {said}"


def test_no_answers_at_all_are_an_error_of_each() -> None:
    assert {report.outcome for report in _ask([True] * 4, scripted.ManyNothing)} == {ERROR}


def test_a_poke_alone_of_a_class_that_answers_many_asks_with_one_context() -> None:
    [report] = one(1, scripted.Many, say=True).poke()
    assert report.outcome is LANDED
    assert scripted.Many.calls == [[True]]


@pytest.mark.parametrize("many", [False, True])
def test_a_class_that_is_not_enabled_fails_its_groups_and_is_not_imported(many: bool) -> None:
    means = Means(Classes(["other.Class"]), Answers([]), {})
    ones = [one(number, scripted.Lands, means) for number in (1, 2)]
    reports = Many(ones, means).poke() if many else ones[0].poke()
    assert {report.outcome for report in reports} == {Outcome.FAIL}
    assert "tests.unit.scripted.Lands is not enabled" in str(reports[0].reason)
    with pytest.raises(ClassRefused, match="is not enabled"):
        means.classes.find("os.system")


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_a_poke_cannot_raise_its_way_out(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def poke(self: Any, context: Any) -> Any:
        raise error

    monkeypatch.setattr(scripted.Lands, "poke", poke)
    [report] = one(1, scripted.Lands).poke()
    assert report.outcome is ERROR
    assert str(report.reason).startswith(type(error).__name__)


def test_all_of_a_call_that_overran_are_reported() -> None:
    means = Means(Classes([]), Answers([]), {})
    work = Many([one(number, scripted.Many, means, say=True) for number in (1, 2)], means)
    assert [group.id for group in work.groups] == [1, 2]
    assert [report.outcome for report in work.overran(1.0)] == [Outcome.POKE_TIMEOUT] * 2
