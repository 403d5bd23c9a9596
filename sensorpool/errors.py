"""Everything that sensorpool raises on purpose. The message is one line: what is wrong, and what mends it."""

from collections.abc import Sequence
from typing import Any


class SensorpoolError(Exception):
    """The base of all errors that a user of sensorpool may want to catch.

    ``registered``: where many were registered at once, the instances of those before, which are kept.
    """

    registered: Sequence[Any] = ()


class CannotPoke(SensorpoolError):
    """Raised by a poke: this process cannot ask, for something is missing where it runs. Another process may have it.

    A connection, a driver, a certificate, a folder that is not mounted: a fault of one process, which fails nobody.
    """


class SettingsError(CannotPoke):
    """A setting of this process is missing, malformed, or impossible beside another one."""


class Refused(SensorpoolError, ValueError):
    """A registration was refused whole; nothing of it was kept."""


class ClassRefused(Refused):
    """A class path is malformed, not on the allowlist, cannot be imported, or names no sensor class."""


class KeyConflict(Refused):
    """The same key and try is registered with another context, or a higher try is there already."""


class ClassUnavailable(ClassRefused):
    """This process cannot poke a class: it is not listed here, cannot be imported here, or is no sensor class here.

    Another process may have it: an older allowlist, a missing module or a failed import is a fault of one place.
    """


class Unknown(SensorpoolError, LookupError):
    """No sensor instance has this id."""


class Unreachable(SensorpoolError, ConnectionError):
    """The database, Redis or the broker did not answer.

    :param in_doubt: whether what was asked for may have been done all the same: only the answer is known to be lost.
    """

    def __init__(self, *said: object, in_doubt: bool = False) -> None:
        super().__init__(*said)
        self.in_doubt = in_doubt


class InDoubt(Unreachable):
    """A registration whose COMMIT was not answered: it may be there, or not.

    ``keys``: what it is registered under if it is; registering it again under its key finds it, or makes it.
    """

    def __init__(self, said: str, keys: Sequence[Any]) -> None:
        super().__init__(said, in_doubt=True)
        self.keys = tuple(keys)


class SchemaMismatch(SensorpoolError):
    """The database's schema is absent, older, or newer than this version of sensorpool can use."""


class CountMismatch(SensorpoolError):
    """A statement changed another number of rows than it was given; its transaction is rolled back."""


class InfraFailure(Exception):
    """A poke could not ask its question: refused, throttled, unreachable. Retried for a window before it counts.

    ``is_infra_failure`` is AIP-17's mark; any exception that carries it is taken so.
    """

    is_infra_failure = True


class SkipSensor(Exception):
    """Raised by a poke: end every waiter as skipped (Airflow's ``AirflowSkipException`` does the same)."""


class HandBack(Exception):
    """Raised by a poke that cannot be answered in the pool: every waiter is told to poke by itself."""


class FailSensor(Exception):
    """Raised by a poke: end every waiter as failed, whatever ``silent_fail`` says (``AirflowFailException``)."""
