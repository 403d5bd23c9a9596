"""The meaning of a poke's return value or exception, and its traceback."""

import errno
import functools
import inspect
import json
import socket
import subprocess
import time
import traceback
import types
from collections.abc import Collection, Iterator
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from typing import Any
from zlib import crc32

from sensorpool.errors import CannotPoke, ClassRefused, ClassUnavailable, FailSensor, HandBack, SkipSensor
from sensorpool.instrumentation.redaction import LONGEST_TEXT, storable
from sensorpool.model.exit_status import is_command_killed
from sensorpool.model.identity import has_half_characters
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Report, Trace
from sensorpool.poke.fork_guard import end_copy
from sensorpool.poke.throttling import NO_BACKEND_OF_ITS, concerns_no_backend, quiet_for

MAX_REASON = 2_000
_LONGEST_CHAIN = 100  # exceptions
_UNREADABLE = "(its text cannot be read)"
MOST_TEXTS = 50  # of tracebacks that a process makes in a second: each takes 0.2 ms
LONGEST_TRACE = 8_000  # characters of a text: its end says most
_FRAMES = 30  # the innermost ones
_CAUSES = 10  # exceptions that an error comes from; of more, none is shown
CANNOT = " cannot poke it: "  # stands between the worker's name and the cause
MAX_XCOM_BYTES = 256 * 1024

_EXHAUSTED = frozenset({errno.ENOMEM, errno.EMFILE, errno.ENFILE})
_NO_THREAD = "can't start new thread"

# compared by name, because the core does not import airflow
_SKIP = "AirflowSkipException"
_TRACED = frozenset({Outcome.POKE_ERROR, Outcome.EXITED, Outcome.INFRA_FAILURE})  # others are raised on purpose
_UNSPELT = frozenset({"builtins", "airflow.sdk.exceptions", "airflow.exceptions"})  # modules that a reason leaves out
_FAIL = ("AirflowFailException", "AirflowSensorTimeout", "AirflowTaskTimeout")

# values that are true to Python but answer nothing, each with what the poke has most likely forgotten
_NO_ANSWERS: tuple[tuple[Any, str], ...] = (
    ((types.GeneratorType, types.AsyncGeneratorType), "return the answer, do not yield it"),
    ((types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial), "call it"),
    (type, "return an answer, not a class"),
    (type(NotImplemented), "return True or False"),
    (Future, "return its result()"),
)


class Reported(Exception):
    """Raised by a poke that another process has made: what that process reported.

    :param reason: as that process spelt it.
    """

    def __init__(
        self, outcome: Outcome, reason: str | None, trace: Trace | None = None, quiet_for: float | None = None
    ) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason
        self.trace = trace
        self.quiet_for = quiet_for


class Traces:
    """The errors of this process's pokes. Threads may share it, and make a few texts more than `MOST_TEXTS`."""

    def __init__(self) -> None:
        self._began, self._made = 0.0, 0  # of the present second

    def of(self, error: BaseException) -> Trace | None:
        """Return the trace of an error, without its text if too many were made; None if it cannot be read."""
        now = time.monotonic()
        if now - self._began >= 1:
            self._began, self._made = now, 0
        self._made += 1
        try:
            return Trace(_signature(error), _text(error) if self._made <= MOST_TEXTS else None)
        except BaseException:  # its attributes or its text raise
            return None


def _signature(error: BaseException) -> str:
    """Return what equal errors have in common: the class, and the lines of code from which it was raised."""
    cls = type(error)
    parts = [cls.__module__, cls.__qualname__]
    frame = error.__traceback__
    for _ in range(10 * _FRAMES):
        if frame is None:
            break
        parts.append(f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}")
        frame = frame.tb_next
    return f"{crc32(chr(10).join(map(str, parts)).encode(errors='replace')):08x}"


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that it comes from, as a traceback shows them; a circle has no end."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def _text(error: BaseException) -> str:
    causes = islice(causes_of(error), _CAUSES + 1)
    is_short = sum(1 for _ in causes) <= _CAUSES
    lines = traceback.format_exception(type(error), error, error.__traceback__, limit=-_FRAMES, chain=is_short)
    text = storable("".join(lines)[-LONGEST_TEXT:])
    return text if len(text) <= LONGEST_TRACE else f"…{text[1 - LONGEST_TRACE :]}"


class Answers:
    """Turns the results of pokes into reports.

    :param infra_failures: class paths of exceptions that mean that the backend could not be asked.
    :ivar ran_out: whether memory, files or threads of this process ran out in a poke.
    """

    def __init__(self, infra_failures: Collection[str]) -> None:
        self.ran_out = False
        self._infra_failures = frozenset(infra_failures)
        self._traces = Traces()
        self.place = socket.gethostname()  # the name that reasons give; a job puts its worker's name here

    def of_value(self, group: DueGroup, began: float, value: Any) -> Report:
        """Read a return value by Airflow's truthiness; an exception of ``__bool__`` is an error of the poke.

        A value that Python takes for true though it answers nothing (a generator, a function, a coroutine that was
        not awaited) is an error too.
        """
        if value is False:
            return Report(group, began, Outcome.NOT_LANDED, None, None, time.monotonic() - began)
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
        end_copy()  # at the fork another thread may have held a lock that is taken here
        if type(error) is Reported:
            said = None if error.reason is None else sanitised(error.reason)
            seconds = time.monotonic() - began
            return Report(group, began, error.outcome, said, None, seconds, error.trace, error.quiet_for)
        try:
            outcome, reason = self.outcome_of(error), reason_of(error)
        except BaseException:  # its attributes or its class raise
            outcome, reason = _error_of(error), f"{type.__getattribute__(type(error), '__name__')}: {_UNREADABLE}"
        if outcome is Outcome.CANNOT_POKE:
            reason = sanitised(f"{self.place}{CANNOT}{reason}")
        trace = self._traces.of(error) if outcome in _TRACED else None
        quiet: float | None = None
        if outcome is Outcome.INFRA_FAILURE:
            own = is_exhaustion(error) or concerns_no_backend(error)
            quiet = NO_BACKEND_OF_ITS if own else quiet_for(error)
        return Report(group, began, outcome, reason, None, time.monotonic() - began, trace, quiet)

    def outcome_of(self, error: BaseException) -> Outcome:
        """Return the outcome that an exception means."""
        names = [cls.__name__ for cls in type(error).__mro__]
        if is_exhaustion(error):
            self.ran_out = True
            return Outcome.INFRA_FAILURE  # also of an error that was meant: it may come of the shortage
        if isinstance(error, SkipSensor) or _SKIP in names:
            return Outcome.SKIP
        if isinstance(error, HandBack):
            return Outcome.HAND_BACK
        if isinstance(error, ClassUnavailable | CannotPoke):
            return Outcome.CANNOT_POKE
        if isinstance(error, FailSensor | ClassRefused) or any(name in names for name in _FAIL):
            return Outcome.FAIL
        if self.is_infra_failure(error):
            return Outcome.INFRA_FAILURE
        if is_of_killed_command(error):  # no answer; what stops a service signals its commands too
            return Outcome.INFRA_FAILURE
        if quiet_for(error) is not None:  # natively the task would fail, and be tried again
            return Outcome.INFRA_FAILURE
        if isinstance(error, ImportError):  # the poke imports a module that this process does not have
            return Outcome.CANNOT_POKE
        return _error_of(error)

    def is_infra_failure(self, error: BaseException) -> bool:
        """Whether an exception says that the backend could not be asked, apart from throttling."""
        with suppress(BaseException):  # its attributes may raise
            if getattr(error, "is_infra_failure", False) is True:
                return True
        return any(f"{cls.__module__}.{cls.__qualname__}" in self._infra_failures for cls in type(error).__mro__)


def is_exhaustion(error: BaseException) -> bool:
    """Whether an exception, its cause or its context says that memory, files or threads of this process ran out.

    The poke that meets the shortage need not be its cause. So the shortage is a failure of the infrastructure, and the
    process is replaced.
    """
    return any(
        each.errno in _EXHAUSTED
        if isinstance(each, OSError)
        else isinstance(each, MemoryError) or (isinstance(each, RuntimeError) and each.args[:1] == (_NO_THREAD,))
        for each in (error, error.__cause__, error.__context__)
    )


def is_of_killed_command(error: BaseException) -> bool:
    """Whether an exception, or one that it comes from, says that a command was killed from outside."""
    return any(
        isinstance(each, subprocess.CalledProcessError)
        and isinstance(each.returncode, int)
        and is_command_killed(each.returncode)
        for each in islice(causes_of(error), _LONGEST_CHAIN)
    )


def _error_of(error: BaseException) -> Outcome:
    """Return the outcome of an error, as ``except Exception`` would see it, whatever its ``__class__`` claims."""
    return Outcome.POKE_ERROR if issubclass(type(error), Exception) else Outcome.EXITED


def refuse_no_answer(value: Any) -> None:
    """Refuse a value that cannot be an answer, and close it.

    :raises TypeError: with the mend.
    """
    if inspect.isawaitable(value):
        forgotten = "await it"
    else:
        forgotten = next((said for types_, said in _NO_ANSWERS if isinstance(value, types_)), "")
    if forgotten:
        close(value)
        raise TypeError(f"the poke returned {_with_article(type(value).__name__)}, which is no answer: {forgotten}")


def close(value: Any) -> None:
    """Close a coroutine or a generator that is not wanted: Python warns of a coroutine that was never awaited."""
    if isinstance(value, types.CoroutineType | types.GeneratorType):
        with suppress(Exception):
            value.close()


def _with_article(name: str) -> str:
    return f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"


def reason_of(error: BaseException) -> str:
    """Return an exception as a reason: the path of its class, as in Python's tracebacks, and its text.

    The task that resumes finds the class again by this path (`airflow.raised`).
    """
    try:
        text = str(error)
    except BaseException:  # `__str__` may raise SystemExit too
        text = _UNREADABLE
    name = _path_of(type(error))
    return sanitised(f"{name}: {text}" if text else name)


def _path_of(cls: type) -> str:
    module = str(cls.__module__)
    is_known = module in _UNSPELT or module.partition(".")[0] == "sensorpool"
    return cls.__qualname__ if is_known else f"{module}.{cls.__qualname__}"


def sanitised(reason: str) -> str:
    """Make a reason fit for every database and log: no NUL, no lone surrogate, no password, `MAX_REASON` characters."""
    text = storable(reason[:LONGEST_TEXT])
    return text if len(text) <= MAX_REASON else f"{text[: MAX_REASON - 1]}…"


def spell_xcom(value: Any) -> str:
    """Write an XCom value as JSON.

    :raises ValueError: when it is not JSON or too large, as in Airflow, or has a lone surrogate: two of these side by
        side come back from JSON as another text.
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
