"""A Redis and a database in this process; Hypothesis without a time limit for examples (a machine may be busy)."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fakeredis
import pytest
from hypothesis import settings

from sensorpool.store.database import Database
from sensorpool.store.migrate import upgrade

settings.register_profile("unit", deadline=None, database=None)
settings.load_profile("unit")


@pytest.fixture(autouse=True)
def same_path() -> Iterator[None]:
    """A test leaves the Python path as it was: otherwise those after it in its process find no package of ours."""
    before = list(sys.path)
    yield
    assert sys.path == before


@pytest.fixture
def server() -> fakeredis.FakeServer:
    """An empty Redis in this process."""
    return fakeredis.FakeServer()


@pytest.fixture
def client(server: fakeredis.FakeServer) -> Any:
    """Its client."""
    return fakeredis.FakeRedis(server=server, decode_responses=True)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file with the tables. Tests copy it, because the migrations take a while."""
    path = tmp_path_factory.mktemp("template") / "pool.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def database(sqlite_template: Path, tmp_path: Path) -> Iterator[Database]:
    """An empty database of the test, with the tables."""
    path = tmp_path / "pool.db"
    shutil.copy(sqlite_template, path)
    made = Database(f"sqlite:///{path}")
    yield made
    made.dispose()
