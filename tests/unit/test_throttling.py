"""Throttling is heard, whatever client says it, and nothing else is taken for it."""

import time
from email.utils import formatdate
from typing import Any

import pytest

from sensorpool.config.defaults import INFRA_FAILURES
from sensorpool.errors import FailSensor, InfraFailure
from sensorpool.model.states import Outcome
from sensorpool.poke.answer import Answers
from sensorpool.poke.throttling import LONGEST, UNNAMED, quiet_for, seconds_of
from tests.support.builders import due_group

ANSWERS = Answers(INFRA_FAILURES)


class Answer:
    """The answer of an HTTP client, as requests and httpx have it."""

    def __init__(self, status_code: int, headers: Any = None) -> None:
        self.status_code = status_code
        self.headers = headers or {}


class HTTPError(Exception):
    """As of requests and httpx."""

    __module__ = "requests.exceptions"

    def __init__(self, status_code: int, headers: Any = None) -> None:
        super().__init__(f"{status_code} error")
        self.response = Answer(status_code, headers)


class ClientResponseError(Exception):
    """As of aiohttp: its headers may be None."""

    __module__ = "aiohttp.client_exceptions"

    def __init__(self, status: int, headers: Any = None) -> None:
        super().__init__()
        self.status, self.headers = status, headers


class ClientError(Exception):
    """As of botocore."""

    __module__ = "botocore.exceptions"

    def __init__(self, code: str, status: int = 400, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"An error occurred ({code})")
        metadata = {"HTTPStatusCode": status, "HTTPHeaders": headers or {}}
        self.response = {"Error": {"Code": code}, "ResponseMetadata": metadata}


class GoogleAPICallError(Exception):
    """As of google.api_core."""

    __module__ = "google.api_core.exceptions"

    def __init__(self, code: int, *reasons: str) -> None:
        super().__init__(f"{code} quota")
        self.code = code
        self.errors = [{"reason": reason} for reason in reasons]


class OldGoogleError(Exception):
    """As googleapiclient's HttpError: its answer is a dictionary of headers, with a status."""

    __module__ = "googleapiclient.errors"

    class Answer(dict[str, str]):
        status = 429

    def __init__(self) -> None:
        super().__init__()
        self.resp = self.Answer({"retry-after": "7"})


class OperationalError(Exception):
    """As of a database's driver."""

    sqlstate: str | None = None


class AirflowException(Exception):
    """Compared by its name."""


def chained(error: Exception, cause: Exception, *, named: bool) -> Exception:
    """Raise an error in an except clause; return it."""
    try:
        try:
            raise cause
        except Exception as caught:
            if named:
                raise error from caught
            raise error  # noqa: B904  # as hooks of Airflow do
    except Exception as caught:
        return caught


def full() -> OperationalError:
    """PostgreSQL's refusal."""
    error = OperationalError("connection failed")
    error.sqlstate = "53300"
    return error


def mysql(number: int) -> Exception:
    """The refusal of a driver for MySQL."""
    cls = type("OperationalError", (Exception,), {"__module__": "pymysql.err"})
    return cls(number, "Too many")  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (InfraFailure("later", retry_after=12), 12.0),
        (InfraFailure("later", response=Answer(429)), UNNAMED),
        (InfraFailure("later", response=Answer(503, {"Retry-After": "11"})), 11.0),
        (HTTPError(403, {"Retry-After": "6"}), 6.0),
        (HTTPError(429), UNNAMED),
        (HTTPError(429, {"Retry-After": "17"}), 17.0),
        (HTTPError(503, {"retry-after": "3"}), 3.0),
        (HTTPError(429, {"Retry-After": "soon"}), UNNAMED),
        (HTTPError(429, {"Retry-After": "-5"}), 0.0),
        (HTTPError(429, {"Retry-After": "1e99"}), LONGEST),
        (HTTPError(429, {"Retry-After": "nan"}), UNNAMED),
        (ClientResponseError(429, None), UNNAMED),
        (ClientResponseError(429, {"RETRY-AFTER": "2"}), 2.0),
        (ClientError("ThrottlingException"), UNNAMED),
        (ClientError("SlowDown", 503, {"retry-after": "4"}), 4.0),
        (ClientError("Whatever", 429), UNNAMED),
        (GoogleAPICallError(429), UNNAMED),
        (GoogleAPICallError(403, "rateLimitExceeded"), UNNAMED),
        (OldGoogleError(), 7.0),
        (full(), UNNAMED),
        (mysql(1040), UNNAMED),
        (OperationalError("FATAL: sorry, too many clients already"), UNNAMED),
        (chained(AirflowException("429:Too Many Requests"), HTTPError(429, {"Retry-After": "9"}), named=False), 9.0),
        (chained(ValueError("wrapped"), HTTPError(429), named=True), UNNAMED),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_throttling_is_heard(error: Exception, seconds: float) -> None:
    assert quiet_for(error) == seconds
    report = ANSWERS.of_exception(due_group(), 0.0, error)
    assert (report.outcome, report.quiet_for) == (Outcome.INFRA_FAILURE, seconds)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("429"),
        HTTPError(403),
        HTTPError(503),
        HTTPError(404, {"Retry-After": "5"}),
        HTTPError(500),
        ClientError("AccessDenied", 403),
        GoogleAPICallError(403, "forbidden"),
        GoogleAPICallError(404),
        OperationalError("no such table"),
        mysql(1146),
        chained(KeyError("beside it"), HTTPError(429), named=False),
        type("Odd", (Exception,), {"code": True, "retry_after": True})(),
        type("Own", (Exception,), {"status": 429})(),  # of a company: its task may have a retry policy for it
    ],
    ids=lambda value: repr(value)[:60],
)
def test_another_error_is_no_throttling(error: Exception) -> None:
    assert quiet_for(error) is None
    assert ANSWERS.of_exception(due_group(), 0.0, error).outcome is Outcome.POKE_ERROR


def test_what_is_raised_on_purpose_stays_what_it_is() -> None:
    report = ANSWERS.of_exception(due_group(), 0.0, chained(FailSensor("no"), HTTPError(429), named=True))
    assert (report.outcome, report.quiet_for) == (Outcome.FAIL, None)


def test_an_infrastructure_failure_that_names_no_time_says_none() -> None:
    report = ANSWERS.of_exception(due_group(), 0.0, InfraFailure("away"))
    assert (report.outcome, report.quiet_for) == (Outcome.INFRA_FAILURE, None)


def test_an_error_whose_attributes_raise_is_an_error_of_the_poke() -> None:
    class Torn(Exception):
        @property
        def response(self) -> Any:
            raise RuntimeError("torn")

    assert quiet_for(Torn()) is None


def test_a_circle_of_causes_has_an_end() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert quiet_for(one) is None


def test_a_retry_after_may_be_a_date() -> None:
    found = seconds_of(formatdate(time.time() + 90, usegmt=True))
    assert found is not None
    assert 60 < found <= 91
    assert seconds_of(formatdate(time.time() - 90, usegmt=True)) == 0.0
