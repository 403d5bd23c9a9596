"""Which errors of a filesystem are failures of the infrastructure: no mistake in the sensor, and likely to pass."""

import errno

from sensorpool.errors import InfraFailure

BUSY_STATUSES = frozenset({429, 502, 503, 504})
"""HTTP: too many requests, bad gateway, service unavailable, gateway timeout."""

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
        "botocore.exceptions.ConnectionError",
        "botocore.exceptions.HTTPClientError",
        "ftplib.error_temp",
        "paramiko.ssh_exception.SSHException",
        "requests.exceptions.ConnectionError",
        "requests.exceptions.Timeout",
        "socket.gaierror",
    }
)


def as_infra_failure(error: BaseException, reason: str) -> InfraFailure | None:
    """Return an `InfraFailure` with the reason if the error, or a cause of it, is a failure of the infrastructure."""
    cause: BaseException | None = error
    for _ in range(8):  # a chain may be a ring
        if cause is None:
            return None
        if _is_passing(cause):
            return InfraFailure(reason)
        cause = cause.__cause__
    return None


def _is_passing(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in _PASSING_ERRORS:
        return True
    if {getattr(error, name, None) for name in ("status", "code")} & BUSY_STATUSES:
        return True  # aiohttp's and gcsfs's errors carry the HTTP status
    names = (f"{cls.__module__}.{cls.__qualname__}" for cls in type(error).__mro__)
    return not _PASSING_CLASSES.isdisjoint(names)
