"""Whether the broker takes messages."""

from sensorpool.config.settings import Settings
from sensorpool.leases.redis_store import RedisStore, connect
from sensorpool.publish import rabbitmq_probe
from sensorpool.publish.wire import is_amqp, is_redis


def probe_broker(settings: Settings) -> None:
    """Check that a broker that is not the Redis of the leases takes messages, and makes the queues of the pool.

    :raises Unreachable: when it does not.
    """
    if is_amqp(settings.broker):
        rabbitmq_probe.probe(settings)
    elif settings.broker != settings.redis_url and is_redis(settings.broker):
        RedisStore(connect(settings.broker), url=settings.broker, namespace=settings.namespace).probe()
