"""Why a sensor is not pooled, or goes back to its worker."""

from sensorpool.errors import SensorpoolError
from sensorpool.instrumentation.redaction import error_text, one_line


class NotPoolable(Exception):
    """The sensor is not poolable and runs natively. The message says why.

    :param kind: a word for the counter.
    """

    def __init__(self, why: str, kind: str = "not_poolable") -> None:
        super().__init__(why)
        self.kind = kind


def reason_for(error: Exception) -> str:
    """Return in a line why a sensor is not pooled; an error that says nothing by itself is named."""
    if isinstance(error, NotPoolable | SensorpoolError):
        return error_text(error)
    return f"sensorpool cannot take it: {one_line(error)}"


# why a sensor begins on a worker where others begin without one: the tag of a metric, so it is one of a few
REASONS_TO_BEGIN = frozenset(
    {
        *("airflow", "arguments", "class", "context", "limit", "listeners", "mapped", "missing", "not_poolable"),
        *("own_work", "pool", "rendering", "template", "unproved", "xcom"),
    }
)


def reason_to_begin(kind: object) -> str:
    """Return the reason of `REASONS_TO_BEGIN` for the kind of a `NotPoolable`."""
    return kind if isinstance(kind, str) and kind in REASONS_TO_BEGIN else "not_poolable"


class OnlyOnWorker(BaseException):
    """A poke in the pool asks for something that only its task or its worker has; the sensor is handed back.

    Not an Exception: a poke that catches exceptions and goes on must not catch this one.
    """


class LookupUnavailable(BaseException):
    """A poke in the pool looks up a Connection or Variable, and Airflow's database does not answer."""
