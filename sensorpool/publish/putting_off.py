"""How long a message waits that its broker did not take, and when a broker counts as away."""

from collections.abc import Callable, Iterator, Sequence

from sqlalchemy.exc import DBAPIError

from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.values import Milliseconds, Settled
from sensorpool.store import results, values
from sensorpool.store.database import Database

LONGEST_AWAY = 60_000  # milliseconds between two attempts at a broker that does not answer
STRIKES = 2  # messages in a row for which the broker did not answer, after which it counts as away
_FIRST_PAUSE = 15_000  # milliseconds after the first refusal; each further one doubles it

log = logger(__name__)


def pause(tries: int, longest: Milliseconds) -> Milliseconds:
    """Return how long a message waits that was tried so many times before."""
    return int(min(longest, _FIRST_PAUSE * 2 ** min(tries, 20)))


def note(act: Callable[[], object]) -> None:
    """Write down that a message waits. That must not stop the rest: rights may be those of the version before."""
    try:
        act()
    except DBAPIError as error:
        log.warning("that a message waits could not be noted", error=one_line(error))


def in_parts(database: Database, instance_ids: Sequence[int]) -> Iterator[list[Settled]]:
    """Yield settled instances, as many at once as memory has room for.

    :raises Unreachable: when the database does not answer.
    """
    for part in database.read(values.in_readable_parts, instance_ids):
        yield database.read(results.read, part)
