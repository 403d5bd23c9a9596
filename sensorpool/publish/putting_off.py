"""How long a message waits after its broker did not take it, and when a broker counts as away."""

from collections.abc import Iterator, Sequence

from sensorpool.model.values import Milliseconds, Settled
from sensorpool.store import results
from sensorpool.store.database import Database

LONGEST_AWAY = 60_000  # milliseconds: the longest pause while a broker does not answer
STRIKES = 2  # messages in a row without an answer after which a broker counts as away
_FIRST_PAUSE = 15_000  # milliseconds after the first refusal; doubles with each further one


def pause(tries: int, longest: Milliseconds) -> Milliseconds:
    """Return how long a message waits after so many earlier tries, at most ``longest``."""
    return int(min(longest, _FIRST_PAUSE * 2 ** min(tries, 20)))


def in_parts(database: Database, instance_ids: Sequence[int]) -> Iterator[list[Settled]]:
    """Yield settled instances, as many at once as memory has room for.

    :raises Unreachable: when the database does not answer.
    """
    for part in database.read(results.in_readable_parts, instance_ids):
        yield database.read(results.read, part)
