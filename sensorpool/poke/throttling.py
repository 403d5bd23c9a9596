"""Throttling: a backend says that it is asked too often, and perhaps for how long it wants to be left alone.

Exceptions are known by their attributes and by the names of their classes: no client library is imported for it.
"""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import Any

from sensorpool.sensors.failures import http_statuses, within

NO_BACKEND_OF_ITS = -1.0  # in the place of seconds: the failure is the pool's own, and says nothing of a backend
UNNAMED = 5.0  # seconds that a backend is left alone which does not say for how long
LONGEST = 600.0  # seconds: a backend that asks for more is asked again all the same
_CHAIN = 10  # exceptions, of those that an exception comes from
# the packages whose exceptions carry the answer of a server; an exception of another package is its own affair, and may
# be what a retry policy of its task waits for
_CLIENTS = frozenset(
    {
        *("requests", "httpx", "aiohttp", "urllib3", "urllib", "botocore", "boto3", "s3fs", "aiobotocore"),
        *("google", "googleapiclient", "gcsfs", "azure", "adlfs", "snowflake", "databricks"),
        *("elasticsearch", "webdav4", "sensorpool"),
    }
)
_TOO_MANY = 429
_WITH_RETRY_AFTER = frozenset({403, 503})  # count only with that header; GitHub's secondary limits answer 403
# botocore's own list, in `botocore.retries.standard.ThrottledRetryableChecker`
_OF_AMAZON = frozenset(
    {
        *("Throttling", "ThrottlingException", "ThrottledException", "RequestThrottledException", "RequestThrottled"),
        *("TooManyRequestsException", "ProvisionedThroughputExceededException", "TransactionInProgressException"),
        *("RequestLimitExceeded", "BandwidthLimitExceeded", "LimitExceededException", "SlowDown"),
        *("PriorRequestNotComplete", "EC2ThrottledException"),
    }
)
# Google's APIs answer some quotas with 403
_OF_GOOGLE = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "RATE_LIMIT_EXCEEDED"})
_OF_QUOTAS = _OF_AMAZON | _OF_GOOGLE
_SQLSTATE = "53300"  # PostgreSQL's too_many_connections
_OF_MYSQL = frozenset({1040, 1203, 1226})  # too many connections, of all users and of one
_MYSQL_MODULES = ("pymysql", "MySQLdb", "mysql", "mariadb")
_SAID = ("too many connections", "too many clients already", "remaining connection slots are reserved")
_OF_AIRFLOW = "AirflowException"
_DATABASE_ERRORS = frozenset({"OperationalError", "DatabaseError", "InternalError", "InterfaceError"})


def quiet_for(error: BaseException) -> float | None:
    """Return for how many seconds a backend wants to be left alone; None: it was not throttling that it said.

    :param error: the exception of a poke; those that it comes from are looked at too.
    """
    for each in islice(_chain(error), _CHAIN):
        with suppress(Exception):  # its attributes may raise
            if (found := _of_one(each)) is not None:
                return min(max(found, 0.0), LONGEST)
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that it comes from.

    What another exception was raised beside of is no cause of it, but for Airflow's: its hooks raise an
    AirflowException in an ``except`` without naming the client's exception as the cause.
    """
    found: BaseException | None = error
    while found is not None:
        yield found
        is_of_airflow = any(cls.__name__ == _OF_AIRFLOW for cls in type(found).__mro__)
        found = found.__cause__ or (found.__context__ if is_of_airflow else None)


def concerns_no_backend(error: BaseException) -> bool:
    """Whether an exception says that the failure is the pool's own."""
    with suppress(Exception):  # its attributes may raise
        return getattr(error, "concerns_backend", True) is False
    return False


def seconds_of(retry_after: object) -> float | None:
    """Return the seconds that a Retry-After names, as a number or as a date; None: it names none."""
    if isinstance(retry_after, bool) or not isinstance(retry_after, int | float | str | bytes):
        return None
    text = retry_after.decode("latin-1") if isinstance(retry_after, bytes) else retry_after
    try:
        found = float(text)
    except ValueError:
        try:
            found = parsedate_to_datetime(str(text)).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(found, 0.0) if math.isfinite(found) else None


def _of_one(error: BaseException) -> float | None:
    """Return the seconds that one exception says."""
    if (named := seconds_of(getattr(error, "retry_after", None))) is not None:
        return named
    if _is_full_database(error):
        return UNNAMED
    if not any(cls.__module__.partition(".")[0] in _CLIENTS for cls in type(error).__mro__):
        return None
    asked = _asked_for(error)
    statuses = set(http_statuses(error))
    if _TOO_MANY in statuses or (asked is not None and statuses & _WITH_RETRY_AFTER):
        return UNNAMED if asked is None else asked
    if not _OF_QUOTAS.isdisjoint(_codes(error)):
        return UNNAMED if asked is None else asked
    return None


def _asked_for(error: BaseException) -> float | None:
    """Return the seconds of a Retry-After header in an exception, or in the answer in it."""
    response = getattr(error, "response", None)
    places = [error, response, getattr(error, "resp", None)]
    headers: list[Any] = [getattr(place, "headers", None) for place in places]
    headers.append(getattr(error, "resp", None))  # httplib2's answer is a dictionary of headers
    if isinstance(response, Mapping):
        headers.append(within(response, "ResponseMetadata", "HTTPHeaders"))
    for some in headers:
        if isinstance(some, Mapping) or hasattr(some, "items"):
            for name, value in list(some.items())[:200]:
                spelt = name.decode("latin-1") if isinstance(name, bytes) else str(name)
                if spelt.lower() == "retry-after":
                    return seconds_of(value)
    return None


def _codes(error: BaseException) -> Iterator[str]:
    """Yield the error codes of Amazon's and Google's clients."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping) and isinstance(code := within(response, "Error", "Code"), str):
        yield code
    for name in ("errors", "error_details"):
        details = getattr(error, name, None)
        for detail in details if isinstance(details, list | tuple) else ():
            if isinstance(detail, Mapping) and isinstance(reason := detail.get("reason"), str):
                yield reason


def _is_full_database(error: BaseException) -> bool:
    """Whether a database's driver says that there are too many connections."""
    if getattr(error, "sqlstate", None) == _SQLSTATE or getattr(error, "pgcode", None) == _SQLSTATE:
        return True
    if not any(cls.__name__ in _DATABASE_ERRORS for cls in type(error).__mro__):
        return False
    first = error.args[0] if error.args else None
    if isinstance(first, int) and first in _OF_MYSQL and type(error).__module__.partition(".")[0] in _MYSQL_MODULES:
        return True
    said = str(error)[:2_000].lower()
    return any(each in said for each in _SAID)
