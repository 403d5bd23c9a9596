"""A whole run of a pool on given servers. A server that this machine lacks skips the tests, and fails them under CI."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.scripted import land
from harness.servers import Missing
from harness.servers.certificates import Certificates, make_certificates
from harness.service import Service
from harness.until import until
from tests.integration.test_main_run import register

Serve = Callable[..., Service]


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    try:
        return make_certificates(tmp_path)
    except Missing as missing:
        lacking(missing)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Makes services on given servers; ends them."""
    made: list[Service] = []

    def start(database_url: str, redis_url: str, **settings: Any) -> Service:
        service = Service(tmp_path, database_url, redis_url, **settings)
        made.append(service)
        return service

    yield start
    for service in made:
        service.stop()


def lacking(missing: Missing) -> Any:
    """End a test whose server this machine lacks."""
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(str(missing))


def whole_run(service: Service, folder: Path) -> None:
    """Register, poke, settle, cancel, ask; nothing may be lost."""
    service.start()
    ids = register(service, folder, count=30, groups=10)
    one = register(service, folder, count=1, groups=1, run_id="cancelled")
    assert service.pool.cancel(one[0]) == "cancelled"
    for number in range(10):
        land(folder, f"g{number}")
    assert set(map(str, service.pool.wait(ids, 60).values())) == {"success"}, service.logs()[-3000:]
    until("a healthy pool", lambda: service.cli("health").returncode == 0, 30)
    done = service.cli("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
