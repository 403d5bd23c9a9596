"""Which errors of a backend are infrastructure failures: no mistake in the sensor, and likely to pass."""

import errno
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from sensorpool.errors import InfraFailure

BUSY_STATUSES = frozenset({429, 502, 503, 504})
"""HTTP: too many requests, bad gateway, service unavailable, gateway timeout."""

NOT_THERE = (FileNotFoundError, NotADirectoryError)
_CHAIN = 8  # a chain of causes may be a ring
_PASSING_ERRORS = frozenset(
    number
    for name in (
        # the other side, or the way to it (ESTALE, EIO, ENOTCONN: a network filesystem that has gone)
        *("ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "EPIPE", "ENOTCONN", "ETIMEDOUT", "EHOSTDOWN"),
        *("EHOSTUNREACH", "ENETDOWN", "ENETUNREACH", "ESTALE", "EIO", "EREMOTEIO", "EBUSY", "EAGAIN"),
        # this machine has run out of a resource
        *("EMFILE", "ENFILE", "ENOMEM", "ENOBUFS", "EADDRNOTAVAIL"),
    )
    if (number := getattr(errno, name, None)) is not None
)

# compared by name, so that no package is imported for the comparison
_PASSING_CLASSES = frozenset(
    {
        "builtins.ConnectionError",
        "builtins.EOFError",
        "builtins.TimeoutError",
        "aiohttp.client_exceptions.ClientConnectionError",
        "aiohttp.client_exceptions.ClientPayloadError",
        "azure.core.exceptions.ServiceRequestError",
        "azure.core.exceptions.ServiceResponseError",
        "botocore.exceptions.ConnectionError",
        "botocore.exceptions.HTTPClientError",
        "ftplib.error_temp",
        "google.auth.exceptions.TransportError",
        "httpx.TransportError",
        "paramiko.ssh_exception.NoValidConnectionsError",
        "paramiko.ssh_exception.SSHException",
        "requests.exceptions.ChunkedEncodingError",
        "requests.exceptions.ConnectionError",
        "requests.exceptions.Timeout",
        "socket.gaierror",
        "ssl.SSLEOFError",
        "ssl.SSLZeroReturnError",
    }
)
# derived from those above: a wrong password or key stays wrong
_PERMANENT_ERRORS = frozenset(
    {
        "httpx.UnsupportedProtocol",
        "paramiko.ssh_exception.AuthenticationException",
        "paramiko.ssh_exception.BadHostKeyException",
        "paramiko.ssh_exception.IncompatiblePeer",
    }
)
_RETRY_500 = ("azure", "gcsfs", "google")  # their 500 is a failure of the service, whatever was asked
# fsspec keeps only the text of what a name node says in a 403 while it stands by, starts or sheds load
_HDFS_BUSY = ("not supported in state standby", "still not started", "too busy")


def as_infra_failure(error: BaseException, reason: str) -> InfraFailure | None:
    """Return an `InfraFailure` with the reason if the error, or a cause of it, is a failure of the infrastructure."""
    for each in islice(causes(error), _CHAIN):
        names = {f"{cls.__module__}.{cls.__qualname__}" for cls in type(each).__mro__}
        if not _PERMANENT_ERRORS.isdisjoint(names) and "timeout" not in str(each).lower():
            return None
        if _is_passing(each, names):
            return InfraFailure(reason)
    return None


def real_error(error: BaseException) -> BaseException | None:
    """Return what an error, or a cause of it, says but that a file is missing; None: it is missing.

    Some filesystems raise FileNotFoundError for other failures, too.
    """
    says_missing = isinstance(error, NOT_THERE)
    for each in islice(causes(error), _CHAIN):
        statuses = set(http_statuses(each))
        if statuses and statuses <= {404, 410}:
            return None
        if says_missing and (statuses or (each is not error and as_infra_failure(each, "") is not None)):
            return each
    return None if says_missing else error


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and those that it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__


def http_statuses(error: BaseException) -> Iterator[int]:
    """Yield the HTTP statuses that an exception, or the answer in it, carries, wherever its library keeps them."""
    response = getattr(error, "response", None)
    for answer in (error, response, getattr(error, "resp", None)):
        for name in ("status_code", "status", "code"):
            status = getattr(answer, name, None)
            if isinstance(status, int):
                if 100 <= status <= 599:  # others have numbers of their own as a code
                    yield int(status)
                break
    if isinstance(response, Mapping):  # botocore's
        status = within(response, "ResponseMetadata", "HTTPStatusCode")
        if isinstance(status, int):
            yield status


def _is_passing(error: BaseException, names: set[str]) -> bool:
    if isinstance(error, OSError) and error.errno in _PASSING_ERRORS:
        return True
    statuses = set(http_statuses(error))
    if not BUSY_STATUSES.isdisjoint(statuses):
        return True
    if 500 in statuses and type(error).__module__.partition(".")[0] in _RETRY_500:
        return True
    if type(error) is RuntimeError and any(said in str(error) for said in _HDFS_BUSY):
        return True
    return not _PASSING_CLASSES.isdisjoint(names)


def within(found: Mapping[Any, Any], *names: str) -> Any:
    """Return a value of nested mappings; None where one of them is missing."""
    value: Any = found
    for name in names:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value
