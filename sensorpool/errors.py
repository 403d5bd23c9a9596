"""Everything that sensorpool raises on purpose. The message is one line: what is wrong, and what mends it."""


class SensorpoolError(Exception):
    """The base of all errors that a user of sensorpool may want to catch."""


class SettingsError(SensorpoolError):
    """A setting is missing, malformed, or impossible beside another one."""


class Refused(SensorpoolError, ValueError):
    """A registration was refused whole; nothing of it was kept."""


class ClassRefused(Refused):
    """A class path is malformed, not on the allowlist, cannot be imported, or names no sensor class."""


class KeyConflict(Refused):
    """The same key and try is registered with another context, or a higher try is there already."""


class Unknown(SensorpoolError, LookupError):
    """No sensor instance has this id."""


class Unreachable(SensorpoolError, ConnectionError):
    """The database, Redis or the broker did not answer."""


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
