"""What a return value or an exception means, as in Airflow; what cannot be read is the poke's own error."""

import json
import socket
from typing import Any

import pytest

from sensorpool.errors import ClassRefused, FailSensor, InfraFailure, SkipSensor
from sensorpool.model import PokeReturnValue
from sensorpool.poke.answer import MAX_REASON, MAX_XCOM_BYTES, Answers, reason_of, sanitised
from sensorpool.settings import INFRA_FAILURES
from sensorpool.states import Outcome
from tests.unit.builders import due_group

ANSWERS = Answers(INFRA_FAILURES)


class Foreign:
    """Another package's PokeReturnValue."""

    def __init__(self, is_done: bool, xcom_value: Any = None) -> None:
        self.is_done = is_done
        self.xcom_value = xcom_value

    def __bool__(self) -> bool:
        return self.is_done


class Stubborn:
    """An object without a truth."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __bool__(self) -> bool:
        raise self._error


class Torn:
    """Truthy, and its XCom value cannot be had."""

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


@pytest.mark.parametrize("value", [True, 1, "no", [0], {"a": 0}, object(), int, Foreign(True), PokeReturnValue(True)])
def test_what_is_truthy_has_landed(value: Any) -> None:
    assert _of_value(value) == (Outcome.LANDED, None, None)


@pytest.mark.parametrize("kind", [PokeReturnValue, Foreign])
@pytest.mark.parametrize("value", [0, False, "", [], {"a": [1, None, "ä\0\ud800"]}])
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
    assert _of_value(Stubborn(error)) == (Outcome.POKE_ERROR, f"{type(error).__name__}: which of them?", None)


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
    (_named("AirflowFailException"), Outcome.FAIL),
    (_named("AirflowSensorTimeout"), Outcome.FAIL),
    (_named("AirflowTaskTimeout", BaseException), Outcome.FAIL),
    (InfraFailure("why"), Outcome.INFRA_FAILURE),
    (_Marked("why"), Outcome.INFRA_FAILURE),
    (ConnectionRefusedError("why"), Outcome.INFRA_FAILURE),
    (socket.gaierror("why"), Outcome.INFRA_FAILURE),
    (_Unsure("why"), Outcome.POKE_ERROR),
    (ValueError("why"), Outcome.POKE_ERROR),
    (TimeoutError("why"), Outcome.POKE_ERROR),
    (_named("AirflowException"), Outcome.POKE_ERROR),
    (_named("AirflowRescheduleException"), Outcome.POKE_ERROR),
]


@pytest.mark.parametrize(("error", "outcome"), MEANINGS, ids=lambda part: repr(part)[:40])
def test_an_exception_means_what_it_means_in_airflow(error: BaseException, outcome: Outcome) -> None:
    report = ANSWERS.of_exception(due_group(), 0.0, error)
    assert (report.outcome, report.xcom_value) == (outcome, None)
    assert report.reason == f"{type(error).__name__}: why"


def test_the_list_of_infrastructure_failures_is_the_settings() -> None:
    none, some = Answers([]), Answers(["builtins.ArithmeticError"])
    assert none.of_exception(due_group(), 0.0, ConnectionError()).outcome is Outcome.POKE_ERROR
    assert some.of_exception(due_group(), 0.0, ZeroDivisionError()).outcome is Outcome.INFRA_FAILURE


class _Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_a_reason_is_said_of_every_exception() -> None:
    assert reason_of(ValueError()) == "ValueError"
    assert reason_of(_Mute()) == "_Mute: (its text cannot be read)"


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
