"""The exchange of results, and how a message on it says whose results it holds."""

from kombu import Exchange

from sensorpool.config.settings import Settings
from sensorpool.publish import wire

RESULTS = Exchange(wire.RESULTS, type="topic", durable=True)
MIXED = "%"  # no dag_id is spelled so: a message for each of a hundred DAGs costs a hundred times as much


def results_exchange(settings: Settings) -> Exchange:
    """Return the exchange of a pool's results."""
    return Exchange(wire.results_of(settings), type="topic", durable=True) if settings.namespace else RESULTS


def routing_key(dag_id: str) -> str:
    """Spell a dag_id as one word of a routing key, of 255 bytes at most: dots and wildcards mean something there."""
    return "".join(c if (c.isascii() and c.isalnum()) or c in "-_~" else f"%{ord(c):02X}" for c in dag_id)[:255]


def is_of_another_pool(said: object, ours: str | None) -> bool:
    """Whether a message says that it is another pool's. An older version's says nothing, and is taken."""
    return said is not None and ours is not None and said != ours
