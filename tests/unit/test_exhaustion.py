"""Memory, files or threads that the pokes of a process share run out; and exceptions that cannot be read."""

import errno
from typing import Any

import pytest

from sensorpool.config.defaults import INFRA_FAILURES
from sensorpool.errors import FailSensor, InfraFailure
from sensorpool.model.states import Outcome
from sensorpool.poke.answer import Answers
from sensorpool.poke.slots import Slots
from sensorpool.poke.thread_lane import ThreadLane
from sensorpool.poke.throttling import NO_BACKEND_OF_ITS
from tests.support.builders import drive, due_group, one
from tests.support.sensors import answering


def raised(error: BaseException, cause: BaseException | None, meets: BaseException) -> BaseException:
    """Return an error that was raised while another one was handled."""
    try:
        try:
            raise meets
        except BaseException:
            raise error from cause
    except BaseException as found:
        return found


SHORTAGES = [
    OSError(errno.EMFILE, "files"),
    OSError(errno.ENFILE, "files"),
    OSError(errno.ENOMEM, "memory"),
    MemoryError(),
    RuntimeError("can't start new thread"),
]


@pytest.mark.parametrize("shortage", SHORTAGES, ids=str)
def test_a_shortage_is_a_failure_of_the_infrastructure_and_of_no_backend(shortage: BaseException) -> None:
    beside, cause = raised(ValueError("x"), None, shortage), raised(FailSensor("x"), shortage, KeyError("y"))
    for error in (shortage, beside, cause):
        answers = Answers(INFRA_FAILURES)
        report = answers.of_exception(due_group(), 0.0, error)
        assert (report.outcome, report.quiet_for) == (Outcome.INFRA_FAILURE, NO_BACKEND_OF_ITS)
        assert answers.ran_out


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (BlockingIOError(errno.EAGAIN, "a lock is taken"), Outcome.POKE_ERROR),
        (RuntimeError("no"), Outcome.POKE_ERROR),
        (FileNotFoundError(errno.ENOENT, "no"), Outcome.POKE_ERROR),
        (OSError(errno.ENOSPC, "the disk is full"), Outcome.POKE_ERROR),
        (InfraFailure("away"), Outcome.INFRA_FAILURE),
    ],
)
def test_other_errors_are_answers(error: BaseException, outcome: Outcome) -> None:
    answers = Answers(INFRA_FAILURES)
    assert answers.of_exception(due_group(), 0.0, error).outcome is outcome
    assert not answers.ran_out


class OddText(Exception):
    """An error whose text raises SystemExit."""

    def __str__(self) -> str:
        raise SystemExit("text")


class OddAttributes(Exception):
    """An error whose attributes raise another exception than AttributeError."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


class OddAttribute(Exception):
    """An error all of whose attributes raise."""

    def __getattribute__(self, name: str) -> Any:
        raise KeyError(name)


@pytest.mark.parametrize("kind", [OddText, OddAttributes, OddAttribute])
def test_an_exception_that_cannot_be_read_is_the_pokes_error(kind: type[Exception]) -> None:
    report = Answers(INFRA_FAILURES).of_exception(due_group(), 0.0, kind())
    assert report.outcome is Outcome.POKE_ERROR
    assert kind.__name__ in str(report.reason)


def test_what_cannot_be_read_at_all_takes_no_thread_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise SystemExit("nothing can be read")

    lane, slots = None, Slots(2)
    broken, well = one(1, answering.Lands), one(2, answering.Lands)
    monkeypatch.setattr(type(broken._tools.answers), "of_value", refuse)
    monkeypatch.setattr(type(broken._tools.answers), "of_exception", refuse)
    lane = ThreadLane(slots, 60.0)
    lane.put([broken])
    [report] = drive(lane, lambda seen: len(seen) == 1, "it is reported at once")
    assert report.outcome is Outcome.POKE_TIMEOUT
    monkeypatch.undo()
    lane.put([well])
    [report] = drive(lane, lambda seen: len(seen) == 1, "the lane goes on")
    assert report.outcome is Outcome.LANDED
