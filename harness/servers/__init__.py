"""Real servers for the tests: loopback only, ports and folders of their own, gone when the run is gone.

    with PostgresServer() as postgres, RedisServer() as redis:
        ...  # postgres.url, redis.url
        redis.kill()
        redis.start()  # the same port, password and folder

PostgreSQL and Redis come out of wheels, MariaDB and RabbitMQ from the system's packages. A server that this machine
does not have raises `Missing`, with the way to get it.
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
