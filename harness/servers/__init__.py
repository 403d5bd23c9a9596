"""Real servers for the tests: on loopback only, with ports and folders of their own; they end with the test run.

    with PostgresServer() as postgres, RedisServer() as redis:
        ...  # postgres.url, redis.url
        redis.kill()
        redis.start()  # the same port, password and folder

PostgreSQL and Redis come from wheels, MariaDB and RabbitMQ from the system's packages. If this machine does not have a
server, `Missing` is raised, with the way to get it.
"""

from .databases import fresh_database
from .elsewhere import Elsewhere
from .mariadb import MariaDbServer
from .postgres import PostgresServer
from .rabbitmq import RabbitMqServer
from .redis import RedisServer
from .server import Missing, Server, StartFailed

__all__ = [
    "Elsewhere",
    "MariaDbServer",
    "Missing",
    "PostgresServer",
    "RabbitMqServer",
    "RedisServer",
    "Server",
    "StartFailed",
    "fresh_database",
]
