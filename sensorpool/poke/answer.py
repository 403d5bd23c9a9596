"""What a poke's return value or exception means."""

import json
import time
from collections.abc import Collection
from typing import Any

from sensorpool.errors import ClassRefused, FailSensor, HandBack, SkipSensor
from sensorpool.model import DueGroup, Report
from sensorpool.redaction import hide
from sensorpool.states import Outcome

MAX_REASON = 2_000
MAX_XCOM_BYTES = 256 * 1024

# told by name, for the core imports no airflow
_SKIP = "AirflowSkipException"
_FAIL = ("AirflowFailException", "AirflowSensorTimeout", "AirflowTaskTimeout")


class Answers:
    """Reads answers.

    :param infra_failures: class paths of exceptions that mean that the backend could not be asked.
    """

    def __init__(self, infra_failures: Collection[str]) -> None:
        self._infra_failures = frozenset(infra_failures)

    def of_value(self, group: DueGroup, began: float, value: Any) -> Report:
        """Read a return value by Airflow's truthiness; whatever ``__bool__`` raises is the poke's own error."""
        xcom_value = None
        try:
            landed = bool(value)
            if landed and hasattr(value, "is_done") and hasattr(value, "xcom_value") and value.xcom_value is not None:
                xcom_value = spell_xcom(value.xcom_value)
        except BaseException as error:  # a poke's SystemExit is an error of that poke
            return self.of_exception(group, began, error)
        outcome = Outcome.LANDED if landed else Outcome.NOT_LANDED
        return Report(group, began, outcome, None, xcom_value, time.monotonic() - began)

    def of_exception(self, group: DueGroup, began: float, error: BaseException) -> Report:
        """Read an exception: Airflow's rules for skip and fail, AIP-17's for infrastructure failures."""
        names = [cls.__name__ for cls in type(error).__mro__]
        if isinstance(error, MemoryError):
            outcome = Outcome.CRASHED  # and no answer: whether it was its own fault is found out apart
        elif isinstance(error, SkipSensor) or _SKIP in names:
            outcome = Outcome.SKIP
        elif isinstance(error, HandBack):
            outcome = Outcome.HAND_BACK
        elif isinstance(error, FailSensor | ClassRefused) or any(name in names for name in _FAIL):
            outcome = Outcome.FAIL
        elif self.is_infra_failure(error):
            outcome = Outcome.INFRA_FAILURE
        else:
            outcome = Outcome.POKE_ERROR
        return Report(group, began, outcome, reason_of(error), None, time.monotonic() - began)

    def is_infra_failure(self, error: BaseException) -> bool:
        """Whether an exception says that the backend could not be asked."""
        if getattr(error, "is_infra_failure", False) is True:
            return True
        return any(f"{cls.__module__}.{cls.__qualname__}" in self._infra_failures for cls in type(error).__mro__)


def reason_of(error: BaseException) -> str:
    """Say an exception as a reason: its type and its text."""
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be read)"
    return sanitised(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def sanitised(reason: str) -> str:
    """Make a reason fit for every database and every log: no NUL, no lone surrogate, no password, not too long."""
    text = reason[: 4 * MAX_REASON].replace("\x00", "\\0").encode("utf-8", "replace").decode()
    text = hide(text)
    return text if len(text) <= MAX_REASON else f"{text[: MAX_REASON - 1]}…"


def spell_xcom(value: Any) -> str:
    """Write an XCom value as JSON.

    :raises ValueError: when it is no JSON or too large, as Airflow would.
    """
    try:
        text = json.dumps(value, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"its xcom_value is not JSON: {error}") from None
    if len(text) > MAX_XCOM_BYTES:
        raise ValueError(f"its xcom_value has {len(text):,} bytes of JSON; {MAX_XCOM_BYTES:,} are allowed")
    return text
