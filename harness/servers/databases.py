"""Databases that last for one test or one run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import URL, NullPool, create_engine, make_url, text

from .elsewhere import Elsewhere
from .server import Server


@contextmanager
def fresh_database(server: Server | Elsewhere, template: str | None = None) -> Iterator[str]:
    """Make a database, empty or as a copy of the one whose URL is ``template``; drop it afterwards."""
    outside = make_url(server.start().url)
    url = outside.set(database=f"sensorpool_test_{os.urandom(6).hex()}")
    copying = f" TEMPLATE {make_url(template).database}" if template else ""
    _execute(outside, f"CREATE DATABASE {url.database}{copying}")
    try:
        yield url.render_as_string(hide_password=False)
    finally:
        # The test may have left the server dead or frozen, or a client connected.
        server.start()
        force = " WITH (FORCE)" if url.get_backend_name() == "postgresql" else ""
        _execute(outside, f"DROP DATABASE IF EXISTS {url.database}{force}")


def _execute(url: URL, statement: str) -> None:
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
