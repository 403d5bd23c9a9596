"""A wait goes on after an outage of the database, and odd calls are refused with one line."""

import math
import time
from datetime import timedelta
from typing import Any

import pytest

from sensorpool import Key
from sensorpool.client import wait
from sensorpool.errors import Refused, Unknown, Unreachable
from sensorpool.model.states import State
from sensorpool.model.values import Registered
from sensorpool.store import inspecting

INSTANCE = Registered(1, 1, 1, 1, State.SENSING, True, Key("a", "b", "c"))


class Scripted:
    """A database that gives these answers in turn, and repeats the last one."""

    def __init__(self, *answers: State | None) -> None:
        self._answers = list(answers)

    def read(self, question: Any, *_: Any) -> dict[int, Any]:
        if question is inspecting.keys:
            return {1: INSTANCE.key}
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is None:
            raise Unreachable("the database does not answer")
        return {1: answer}


def waited(database: Any, named: Any, timeout: Any = None) -> dict[int, State]:
    waiting = wait.Wait(database, named, timeout)
    while (pause := waiting.look()) is not None:
        time.sleep(pause)
    return waiting.states


def _wait(*answers: State | None, timeout: float | None = None) -> dict[int, State]:
    return waited(Scripted(*answers), [1], timeout)


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_a_restart_ends_no_wait(timeout: float | None) -> None:
    assert _wait(State.SENSING, None, None, State.SUCCESS, timeout=timeout) == {1: State.SUCCESS}


def test_what_never_answered_is_said_at_once() -> None:
    with pytest.raises(Unreachable):
        _wait(None, State.SUCCESS)


def test_at_the_timeout_an_answer_is_needed() -> None:
    with pytest.raises(Unreachable):
        _wait(State.SENSING, None, timeout=0.1)


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "PATIENCE", 0.1)
    with pytest.raises(Unreachable):
        _wait(State.SENSING, None)


@pytest.mark.parametrize(
    "named",
    [[1], [INSTANCE], INSTANCE, (each for each in [1, INSTANCE]), 1],
    ids=["ids", "instances", "one", "iterator", "id"],
)
def test_an_instance_is_named_by_its_id_or_as_it_was_returned(named: Any) -> None:
    database: Any = Scripted(State.SUCCESS)
    assert waited(database, named) == {1: State.SUCCESS}


@pytest.mark.parametrize("named", [[True], [1.0], ["1"], [None], [[1]], None, True, "abc", b"1"], ids=repr)
def test_what_names_no_instance_is_refused(named: Any) -> None:
    database: Any = Scripted(State.SUCCESS)
    with pytest.raises(Refused, match="named by") as caught:
        waited(database, named)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("timeout", ["1", math.nan, 10**400, True, [1]], ids=lambda value: repr(value)[:10])
def test_a_timeout_that_is_no_number_is_refused(timeout: Any) -> None:
    database: Any = Scripted(State.SUCCESS)
    with pytest.raises(Refused, match="timeout must be a number of seconds"):
        waited(database, [1], timeout)


@pytest.mark.parametrize("timeout", [0, -5, 0.0, timedelta(0)], ids=repr)
def test_a_wait_may_be_a_look(timeout: Any) -> None:
    assert _wait(State.SENSING, timeout=timeout) == {1: State.SENSING}


@pytest.mark.parametrize(("named", "reason"), [("1", "x"), (True, "x"), (1.5, "x"), (1, None), (1, 5), (1, b"x")])
def test_a_cancel_of_nothing_or_for_no_reason_is_refused(named: Any, reason: Any) -> None:
    database: Any = Scripted(State.SUCCESS)
    with pytest.raises(Refused, match=r"named by|a reason is text"):
        wait.cancel(database, named, reason)


@pytest.mark.parametrize("named", [0, -1, 2**63, 10**5_000], ids=lambda value: value.bit_length())
def test_a_number_that_no_instance_has_is_unknown(named: int) -> None:
    database: Any = Scripted(State.SUCCESS)
    with pytest.raises(Unknown, match="there is no instance"):
        waited(database, [named])
