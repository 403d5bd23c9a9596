"""The meaning of a return value or an exception, as in Airflow; an answer that cannot be read is the poke's error."""

import functools
import gc
import json
import socket
import traceback
from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from subprocess import CalledProcessError
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest

from sensorpool.config.defaults import INFRA_FAILURES
from sensorpool.errors import (
    CannotPoke,
    ClassRefused,
    ClassUnavailable,
    FailSensor,
    InfraFailure,
    SettingsError,
    SkipSensor,
)
from sensorpool.model.states import Outcome
from sensorpool.model.values import PokeReturnValue
from sensorpool.poke.answer import MAX_REASON, MAX_XCOM_BYTES, Answers, reason_of, sanitised
from tests.support.builders import due_group

ANSWERS = Answers(INFRA_FAILURES)


class Foreign:
    """Another package's PokeReturnValue."""

    def __init__(self, is_done: bool, xcom_value: Any = None) -> None:
        self.is_done = is_done
        self.xcom_value = xcom_value

    def __bool__(self) -> bool:
        return self.is_done

    def __repr__(self) -> str:
        return f"Foreign({self.is_done}, {self.xcom_value})"


class Stubborn:
    """An object whose truth value cannot be read."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __bool__(self) -> bool:
        raise self._error


class Torn:
    """A true value whose XCom value cannot be read."""

    is_done = True

    @property
    def xcom_value(self) -> Any:
        raise LookupError("gone")


def _of_value(value: Any) -> tuple[Outcome, str | None, str | None]:
    report = ANSWERS.of_value(due_group(), 0.0, value)
    return report.outcome, report.reason, report.xcom_value


FALSY = [None, False, 0, 0.0, "", [], {}, (), Foreign(False, 1), PokeReturnValue(False, 1)]


@pytest.mark.parametrize("value", FALSY, ids=repr)
def test_what_is_falsy_has_not_landed(value: Any) -> None:
    assert _of_value(value) == (Outcome.NOT_LANDED, None, None)


@pytest.mark.parametrize("value", [True, 1, "no", [0], {"a": 0}, object(), Foreign(True), PokeReturnValue(True)])
def test_what_is_truthy_has_landed(value: Any) -> None:
    assert _of_value(value) == (Outcome.LANDED, None, None)


@pytest.mark.parametrize("kind", [PokeReturnValue, Foreign])
@pytest.mark.parametrize("value", [0, False, "", [], {"a": [1, None, "ä\0", "\\ud83d", "😀"]}])
def test_an_xcom_value_is_kept_as_json(kind: Any, value: Any) -> None:
    outcome, reason, xcom_value = _of_value(kind(True, value))
    assert (outcome, reason) == (Outcome.LANDED, None)
    assert xcom_value is not None
    assert json.loads(xcom_value) == value
    assert "\0" not in xcom_value
    assert xcom_value.encode()


@pytest.mark.parametrize(
    "error", [ValueError("which of them?"), SystemExit("which of them?"), GeneratorExit("which of them?")], ids=repr
)
def test_an_object_without_a_truth_is_an_error(error: BaseException) -> None:
    expected = Outcome.POKE_ERROR if isinstance(error, Exception) else Outcome.EXITED
    assert _of_value(Stubborn(error)) == (expected, f"{type(error).__name__}: which of them?", None)


def test_an_infrastructure_failure_is_one_wherever_it_is_raised() -> None:
    assert _of_value(Stubborn(ConnectionResetError("lazy")))[0] is Outcome.INFRA_FAILURE


def _deep() -> list[Any]:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


UNWRITABLE = [object(), {1, 2}, b"x", float("nan"), {"a": float("inf")}, {(1, 2): 3}, _deep()]


@pytest.mark.parametrize("value", UNWRITABLE, ids=lambda value: type(value).__name__)
def test_an_xcom_value_that_is_no_json_is_an_error_with_its_reason(value: Any) -> None:
    outcome, reason, xcom_value = _of_value(PokeReturnValue(True, value))
    assert (outcome, xcom_value) == (Outcome.POKE_ERROR, None)
    assert "its xcom_value is not JSON" in str(reason)
    assert _of_value(PokeReturnValue(False, value))[0] is Outcome.NOT_LANDED


@pytest.mark.parametrize("value", ["\ud83d\ude00", "\ud800", ["x", {"\udc00": 1}]], ids=ascii)
def test_an_xcom_value_that_would_come_back_as_another_text_is_an_error(value: Any) -> None:
    outcome, reason, xcom_value = _of_value(PokeReturnValue(True, value))
    assert (outcome, xcom_value) == (Outcome.POKE_ERROR, None)
    assert reason == "ValueError: its xcom_value has a lone surrogate, which UTF-8 cannot say"


async def _coroutine() -> bool:
    return False


async def _async_generator() -> AsyncIterator[bool]:
    yield False


NO_ANSWERS = [
    (lambda: (each for each in [False]), "a generator, which is no answer: return the answer, do not yield it"),
    (_async_generator, "an async_generator, which is no answer: return the answer, do not yield it"),
    (_coroutine, "a coroutine, which is no answer: await it"),
    (lambda: _coroutine, "a function, which is no answer: call it"),
    (lambda: len, "a builtin_function_or_method, which is no answer: call it"),
    (lambda: [].append, "a builtin_function_or_method, which is no answer: call it"),
    (lambda: Foreign(False).__bool__, "a method, which is no answer: call it"),
    (lambda: functools.partial(bool, 0), "a partial, which is no answer: call it"),
    (lambda: int, "a type, which is no answer: return an answer, not a class"),
    (lambda: NotImplemented, "a NotImplementedType, which is no answer: return True or False"),
    (Future, "a Future, which is no answer: return its result()"),
]


@pytest.mark.parametrize(("make", "said"), NO_ANSWERS, ids=[said.partition(",")[0] for _, said in NO_ANSWERS])
def test_what_python_takes_for_true_and_answers_nothing_is_an_error(make: Callable[[], Any], said: str) -> None:
    """Python gives no warning of a coroutine that was never awaited."""
    assert _of_value(make()) == (Outcome.POKE_ERROR, f"TypeError: the poke returned {said}", None)
    gc.collect()


@pytest.mark.parametrize("kind", [Mock, MagicMock])
def test_a_mock_has_not_landed(kind: Any) -> None:
    assert _of_value(kind())[0] is Outcome.POKE_ERROR


def test_an_xcom_value_has_a_limit() -> None:
    assert _of_value(PokeReturnValue(True, "x" * (MAX_XCOM_BYTES - 2)))[0] is Outcome.LANDED
    outcome, reason, _ = _of_value(PokeReturnValue(True, "x" * (MAX_XCOM_BYTES - 1)))
    assert outcome is Outcome.POKE_ERROR
    assert "bytes" in str(reason)


def test_an_xcom_value_that_cannot_be_had_is_an_error() -> None:
    assert _of_value(Torn()) == (Outcome.POKE_ERROR, "LookupError: gone", None)


def _named(name: str, base: type[BaseException] = Exception) -> BaseException:
    return type("Derived", (type(name, (base,), {}),), {})("why")


class _Marked(Exception):
    is_infra_failure = True


class _Unsure(Exception):
    is_infra_failure = "perhaps"


MEANINGS: list[tuple[BaseException, Outcome]] = [
    (SkipSensor("why"), Outcome.SKIP),
    (_named("AirflowSkipException"), Outcome.SKIP),
    (FailSensor("why"), Outcome.FAIL),
    (ClassRefused("why"), Outcome.FAIL),
    (ClassUnavailable("why"), Outcome.CANNOT_POKE),
    (CannotPoke("why"), Outcome.CANNOT_POKE),
    (SettingsError("why"), Outcome.CANNOT_POKE),
    (ModuleNotFoundError("why"), Outcome.CANNOT_POKE),
    (_named("AirflowFailException"), Outcome.FAIL),
    (_named("AirflowSensorTimeout"), Outcome.FAIL),
    (_named("AirflowTaskTimeout", BaseException), Outcome.FAIL),
    (InfraFailure("why"), Outcome.INFRA_FAILURE),
    (_Marked("why"), Outcome.INFRA_FAILURE),
    (ConnectionRefusedError("why"), Outcome.INFRA_FAILURE),
    (socket.gaierror("why"), Outcome.INFRA_FAILURE),
    (_Unsure("why"), Outcome.POKE_ERROR),
    (ValueError("why"), Outcome.POKE_ERROR),
    (SystemExit("why"), Outcome.EXITED),
    (KeyboardInterrupt("why"), Outcome.EXITED),
    (GeneratorExit("why"), Outcome.EXITED),
    (CancelledError("why"), Outcome.EXITED),
    (TimeoutError("why"), Outcome.POKE_ERROR),
    (_named("AirflowException"), Outcome.POKE_ERROR),
    (_named("AirflowRescheduleException"), Outcome.POKE_ERROR),
]


@pytest.mark.parametrize(("error", "outcome"), MEANINGS, ids=lambda part: repr(part)[:40])
def test_an_exception_means_what_it_means_in_airflow(error: BaseException, outcome: Outcome) -> None:
    report = ANSWERS.of_exception(due_group(), 0.0, error)
    assert (report.outcome, report.xcom_value) == (outcome, None)
    # as in the last line of Python's traceback, except for the classes of Airflow and ours
    said = traceback.format_exception_only(error)[-1].strip().removeprefix("sensorpool.errors.")
    assert report.reason == (f"{ANSWERS.place} cannot poke it: {said}" if outcome is Outcome.CANNOT_POKE else said)


def test_the_list_of_infrastructure_failures_is_the_settings() -> None:
    none, some = Answers([]), Answers(["builtins.ArithmeticError"])
    assert none.of_exception(due_group(), 0.0, ConnectionError()).outcome is Outcome.POKE_ERROR
    assert some.of_exception(due_group(), 0.0, ZeroDivisionError()).outcome is Outcome.INFRA_FAILURE


class _Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def _of_command(returncode: int, how: str) -> BaseException:
    error = CalledProcessError(returncode, ["sh"])
    try:
        try:
            raise error
        except CalledProcessError:
            match how:
                case "itself":
                    raise
                case "cause":
                    raise RuntimeError("the check failed") from error
                case "context":
                    raise RuntimeError("the check failed")  # noqa: B904
                case "hidden":
                    raise RuntimeError("the check failed") from None
                case _:
                    raise SkipSensor("no such table") from error
    except Exception as raised:
        return raised


@pytest.mark.parametrize("how", ["itself", "cause", "context"])
@pytest.mark.parametrize("returncode", [-15, -2, -1, -9, 143, 130, 129, 137])
def test_a_command_that_was_killed_from_outside_gave_no_answer(returncode: int, how: str) -> None:
    """What stops a service signals the commands of its pokes, too."""
    assert ANSWERS.outcome_of(_of_command(returncode, how)) is Outcome.INFRA_FAILURE


@pytest.mark.parametrize("returncode", [1, 2, 127, 128, 255, -6, -11, 139])
def test_a_command_that_failed_by_itself_is_an_error(returncode: int) -> None:
    assert ANSWERS.outcome_of(_of_command(returncode, "itself")) is Outcome.POKE_ERROR


def test_a_poke_that_judges_the_end_of_its_command_is_believed() -> None:
    assert ANSWERS.outcome_of(_of_command(-15, "hidden")) is Outcome.POKE_ERROR
    assert ANSWERS.outcome_of(_of_command(-15, "skip")) is Outcome.SKIP


def test_a_reason_is_said_of_every_exception() -> None:
    assert reason_of(ValueError()) == "ValueError"
    assert reason_of(_Mute()) == f"{__name__}._Mute: (its text cannot be read)"


def test_a_reason_fits_every_database() -> None:
    reason = reason_of(ValueError("a\0b\ud800c" + "ä" * 100_000))
    assert "\0" not in reason
    assert reason.encode()
    assert len(reason) <= MAX_REASON
    assert reason.endswith("…")
    assert len(sanitised("\0" * MAX_REASON)) <= MAX_REASON


SECRETS = [
    "cannot reach postgresql://user:hunter2@host/name",
    "GET https://host/a?token=hunter2 gave 500",
    "GET https://host/a?b=c&api_key=hunter2&d=e gave 500",
    "Authorization: Bearer hunter2",
    "{'Authorization': 'Bearer hunter2'}",
    "authorization: Basic hunter2",
    "sent Bearer hunter2",
    "password=hunter2",
    "password: hunter2",
    "db_password=hunter2",
    "access_token=hunter2",
    '{"password": "hunter2"}',
    "API-Key: hunter2",
]


@pytest.mark.parametrize("text", SECRETS)
def test_a_reason_tells_no_secret(text: str) -> None:
    assert "hunter2" not in reason_of(ValueError(text))


def test_a_reason_keeps_what_is_no_secret() -> None:
    text = "GET https://host/a?token=abc gave 500: no key of that name, its path is a/b"
    assert sanitised(text) == text.replace("abc", "***")
