"""The errors of sensorpool. Each message is one line: what is wrong, and what mends it."""

from collections.abc import Sequence
from typing import Any


class SensorpoolError(Exception):
    """The base of all errors that a user of sensorpool may want to catch.

    ``registered``: the instances of earlier batches of the same call, which are kept.
    """

    registered: Sequence[Any] = ()


class CannotPoke(SensorpoolError):
    """Raised by a poke: this process cannot ask, because it lacks something that another process may have.

    A connection, a driver, a certificate or a folder that is not mounted: a fault of one process fails no sensor.
    """


class SettingsError(CannotPoke):
    """A setting of this process is missing, malformed, or impossible beside another one."""


class Refused(SensorpoolError, ValueError):
    """A registration was refused as a whole; no part of it is kept."""


class ClassRefused(Refused):
    """A class path is malformed, not on the allowlist, cannot be imported, or names no sensor class."""


class KeyConflict(Refused):
    """The same key and try is registered with another context, or a higher try is registered already."""


class ClassUnavailable(ClassRefused):
    """This process cannot poke a class: its allowlist lacks the class, the import fails, or it is no sensor class.

    Another process may have the class: an old allowlist, a missing module or a failed import is a fault of one process.
    """


class Unknown(SensorpoolError, LookupError):
    """No sensor instance has this id."""


class Unreachable(SensorpoolError, ConnectionError):
    """The database, Redis or the broker did not answer.

    :param in_doubt: whether the change may have been made all the same, because only its answer was lost.
    """

    def __init__(self, *said: object, in_doubt: bool = False) -> None:
        super().__init__(*said)
        self.in_doubt = in_doubt


class InDoubt(Unreachable):
    """A registration whose COMMIT had no answer, so that it may exist or not.

    ``keys``: the keys of its instances; a second registration under these keys finds the instances, or makes them.
    """

    def __init__(self, said: str, keys: Sequence[Any]) -> None:
        super().__init__(said, in_doubt=True)
        self.keys = tuple(keys)


class SchemaMismatch(SensorpoolError):
    """The database has no schema of ours, or an older or newer one than this version of sensorpool can use."""


class CountMismatch(SensorpoolError):
    """A statement changed another number of rows than it was given; its transaction is rolled back."""


class InfraFailure(Exception):
    """Raised by a poke whose backend refuses, throttles or cannot be reached. Retried for a window before it counts.

    ``is_infra_failure`` is AIP-17's mark; any exception with this attribute counts as an infrastructure failure.

    :param retry_after: seconds for which the backend wants to be left alone; None: it did not say so.
    :param response: the HTTP response, of any client: its status and its ``Retry-After`` say the same.
    """

    is_infra_failure = True
    concerns_backend = True

    def __init__(self, *said: object, retry_after: float | None = None, response: object = None) -> None:
        super().__init__(*said)
        self.retry_after = retry_after
        self.response = response


class NotReady(InfraFailure):
    """Raised where the pool itself cannot ask yet, as while it loads a DAG file: it says nothing of a backend."""

    concerns_backend = False


class SkipSensor(Exception):
    """Raised by a poke: end every waiter as skipped (Airflow's ``AirflowSkipException`` does the same)."""


class HandBack(Exception):
    """Raised by a poke that the pool cannot answer: every waiter has to poke by itself."""


class SensorFailed(SensorpoolError):
    """Raised by a step of a Celery canvas whose condition did not land: it failed, was skipped or was cancelled."""


class FailSensor(Exception):
    """Raised by a poke: end every waiter as failed, whatever ``silent_fail`` says (``AirflowFailException``)."""
