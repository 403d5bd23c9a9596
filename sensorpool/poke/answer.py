"""What a poke's return value or exception means."""

import functools
import inspect
import json
import socket
import time
import types
from collections.abc import Collection
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from sensorpool.errors import CannotPoke, ClassRefused, ClassUnavailable, FailSensor, HandBack, SkipSensor
from sensorpool.instrumentation.redaction import LONGEST_TEXT, hide
from sensorpool.model.identity import has_half_characters
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Report
from sensorpool.poke.exhaustion import is_exhaustion, is_out_of_memory, is_own_doing

MAX_REASON = 2_000
_UNREADABLE = "(its text cannot be read)"
CANNOT = " cannot poke it: "  # between the worker and the cause
MAX_XCOM_BYTES = 256 * 1024

# told by name, for the core imports no airflow
_SKIP = "AirflowSkipException"
_UNSPELT = frozenset({"builtins", "airflow.sdk.exceptions", "airflow.exceptions"})  # modules
_FAIL = ("AirflowFailException", "AirflowSensorTimeout", "AirflowTaskTimeout")

# true to Python, whatever was meant: each with what a poke that returns one has most likely forgotten
_NO_ANSWERS: tuple[tuple[Any, str], ...] = (
    ((types.GeneratorType, types.AsyncGeneratorType), "return the answer, do not yield it"),
    ((types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial), "call it"),
    (type, "return an answer, not a class"),
    (type(NotImplemented), "return True or False"),
    (Future, "return its result()"),
)


class Answers:
    """Reads answers.

    :param infra_failures: class paths of exceptions that mean that the backend could not be asked.
    :param alone: whether the process pokes one group only, so that what runs out in it is that poke's doing.
    """

    def __init__(self, infra_failures: Collection[str], *, alone: bool = False) -> None:
        self._infra_failures = frozenset(infra_failures)
        self._alone = alone
        self.place = socket.gethostname()  # whose reasons these are; a job knows its worker's name

    def of_value(self, group: DueGroup, began: float, value: Any) -> Report:
        """Read a return value by Airflow's truthiness; whatever ``__bool__`` raises is the poke's own error.

        What Python takes for true though it answers nothing (a generator, a function, a coroutine that was not
        awaited) is an error too.
        """
        xcom_value = None
        try:
            if value is not True and value is not None:
                refuse_no_answer(value)
            landed = bool(value)
            if landed and hasattr(value, "is_done") and hasattr(value, "xcom_value") and value.xcom_value is not None:
                xcom_value = spell_xcom(value.xcom_value)
        except BaseException as error:  # a poke's SystemExit is an error of that poke
            return self.of_exception(group, began, error)
        outcome = Outcome.LANDED if landed else Outcome.NOT_LANDED
        return Report(group, began, outcome, None, xcom_value, time.monotonic() - began)

    def of_exception(self, group: DueGroup, began: float, error: BaseException) -> Report:
        """Read an exception: Airflow's rules for skip and fail, AIP-17's for infrastructure failures."""
        try:
            outcome, reason = self.outcome_of(error), reason_of(error)
        except BaseException:  # its attributes or its class raise
            outcome, reason = _error_of(error), f"{type.__getattribute__(type(error), '__name__')}: {_UNREADABLE}"
        if outcome is Outcome.CANNOT_POKE:
            reason = sanitised(f"{self.place}{CANNOT}{reason}")
        return Report(group, began, outcome, reason, None, time.monotonic() - began)

    def outcome_of(self, error: BaseException) -> Outcome:
        """Tell what an exception says."""
        names = [cls.__name__ for cls in type(error).__mro__]
        if is_out_of_memory(error):
            return Outcome.CRASHED  # and no answer: whether it was its own fault is found out apart
        if isinstance(error, SkipSensor) or _SKIP in names:
            return Outcome.SKIP
        if isinstance(error, HandBack):
            return Outcome.HAND_BACK
        if isinstance(error, ClassUnavailable | CannotPoke):
            return Outcome.CANNOT_POKE
        if isinstance(error, FailSensor | ClassRefused) or any(name in names for name in _FAIL):
            return Outcome.FAIL
        if is_exhaustion(error) and not (self._alone and is_own_doing(error)):
            return Outcome.INFRA_FAILURE if self._alone else Outcome.CRASHED
        if self.is_infra_failure(error):
            return Outcome.INFRA_FAILURE
        if isinstance(error, ImportError):  # a module that this process does not have, asked for late
            return Outcome.CANNOT_POKE
        return _error_of(error)

    def is_infra_failure(self, error: BaseException) -> bool:
        """Whether an exception says that the backend could not be asked."""
        with suppress(BaseException):  # its attributes may raise
            if getattr(error, "is_infra_failure", False) is True:
                return True
        return any(f"{cls.__module__}.{cls.__qualname__}" in self._infra_failures for cls in type(error).__mro__)


def _error_of(error: BaseException) -> Outcome:
    """Tell an error: as ``except Exception`` would, whatever its class says that it is."""
    return Outcome.POKE_ERROR if issubclass(type(error), Exception) else Outcome.EXITED


def refuse_no_answer(value: Any) -> None:
    """Refuse what cannot be an answer, and close it.

    :raises TypeError: with what mends it.
    """
    if inspect.isawaitable(value):
        forgotten = "await it"
    else:
        forgotten = next((said for types_, said in _NO_ANSWERS if isinstance(value, types_)), "")
    if forgotten:
        close(value)
        raise TypeError(f"the poke returned {_with_article(type(value).__name__)}, which is no answer: {forgotten}")


def close(value: Any) -> None:
    """Close a coroutine or a generator that is not wanted: Python warns of one that was never awaited."""
    if isinstance(value, types.CoroutineType | types.GeneratorType):
        with suppress(Exception):
            value.close()


def _with_article(name: str) -> str:
    return f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"


def reason_of(error: BaseException) -> str:
    """Say an exception as a reason: the path of its class, as Python's tracebacks say it, and its text.

    By that path the task that resumes finds the class again (`airflow.raised`).
    """
    try:
        text = str(error)
    except BaseException:  # SystemExit too
        text = _UNREADABLE
    name = _path_of(type(error))
    return sanitised(f"{name}: {text}" if text else name)


def _path_of(cls: type) -> str:
    module = str(cls.__module__)
    is_known = module in _UNSPELT or module.partition(".")[0] == "sensorpool"
    return cls.__qualname__ if is_known else f"{module}.{cls.__qualname__}"


def sanitised(reason: str) -> str:
    """Make a reason fit for every database and every log: no NUL, no lone surrogate, no password, not too long."""
    text = hide(reason[:LONGEST_TEXT]).replace("\x00", "\\0").encode("utf-8", "replace").decode()
    return text if len(text) <= MAX_REASON else f"{text[: MAX_REASON - 1]}…"


def spell_xcom(value: Any) -> str:
    """Write an XCom value as JSON.

    :raises ValueError: when it is no JSON or too large, as Airflow would, or holds half a character: two of these
        side by side (lone surrogates) come back from JSON as another text.
    """
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"its xcom_value is not JSON: {error}") from None
    if has_half_characters(value, text):
        raise ValueError("its xcom_value has a lone surrogate, which UTF-8 cannot say")
    if len(text) > MAX_XCOM_BYTES:
        raise ValueError(f"its xcom_value has {len(text):,} bytes of JSON; {MAX_XCOM_BYTES:,} are allowed")
    return text
