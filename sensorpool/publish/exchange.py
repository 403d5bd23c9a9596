"""The exchange of results, its routing keys, and how a message names its pool."""

from kombu import Exchange

from sensorpool.config.settings import Settings
from sensorpool.publish import wire

RESULTS = Exchange(wire.RESULTS, type="topic", durable=True)
MIXED = "%"  # the routing key of results of several DAGs, as no dag_id is spelled: a message for each DAG costs more


def results_exchange(settings: Settings) -> Exchange:
    """Return the exchange of a pool's results."""
    return Exchange(wire.results_of(settings), type="topic", durable=True) if settings.namespace else RESULTS


def routing_key(dag_id: str) -> str:
    """Spell a dag_id as one word of a routing key, of at most 255 bytes: dots and wildcards have a meaning there."""
    return "".join(c if (c.isascii() and c.isalnum()) or c in "-_~" else f"%{ord(c):02X}" for c in dag_id)[:255]


def is_of_another_pool(named: object, ours: str | None) -> bool:
    """Whether a message names another pool. One that names none, for its sender does not know it, is taken."""
    return named is not None and ours is not None and named != ours
