"""Threat: a door that stands open: Flower without a password, a port beyond loopback."""

import os
import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from harness.service import Service, kill_tree
from harness.until import until
from sensorpool.service.app import make_app
from sensorpool.store import migrate
from sensorpool.store.database import Database
from tests.integration.test_results import free_port

COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"
DEMO = Path(__file__).parents[2] / "examples/demo/demo.py"


def status(url: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def listening(process: Any) -> set[str]:
    """The addresses that a process and its children listen on."""
    found = set()
    for one in [process, *process.children(recursive=True)]:
        try:
            found |= {c.laddr.ip for c in one.net_connections("inet") if c.status == psutil.CONN_LISTEN}
        except psutil.NoSuchProcess:
            continue
    return found


def test_flower_asks_for_the_password(service: Service) -> None:
    """Threat `Flower`: started as compose starts it, but for its address and port."""
    words = yaml.safe_load(COMPOSE.read_text())["services"]["flower"]["command"][-1].replace("$$", "$")
    command = shlex.split(
        next(line for line in words.splitlines() if line.startswith("exec")).removeprefix("exec celery")
    )
    port = free_port()
    options = [re.sub("0.0.0.0", "127.0.0.1", word) for word in command[3:] if not word.startswith("--port")]
    flower = service.process("flower", *options, f"--port={port}", FLOWER_BASIC_AUTH="name:password")
    root = f"http://127.0.0.1:{port}"
    until("Flower", lambda: status(root))
    basic = {"Authorization": "Basic bmFtZTpwYXNzd29yZA=="}
    for page in ("/", "/workers", "/tasks", "/api/workers", "/api/tasks"):
        assert status(root + page) == 401, page
        assert status(root + page, Authorization="Basic bmFtZTp3cm9uZw==") == 401
    assert status(f"{root}/tasks", **basic) == 200
    assert listening(psutil.Process(flower.pid)) == {"127.0.0.1"}
    assert "profiles" in yaml.safe_load(COMPOSE.read_text())["services"]["flower"]


def test_a_worker_listens_on_loopback_only(make_service: Callable[..., Service]) -> None:
    """Threat `Flower`: the metrics of a real worker, by its sockets."""
    service = make_service(metrics_port=free_port())
    worker = psutil.Process(service.worker().pid)
    until("the metrics", lambda: listening(worker))
    assert listening(worker) == {"127.0.0.1"}


def test_no_worker_takes_commands_over_the_broker(service: Service) -> None:
    """Threat `remote control`: by default no worker hears what `celery control` broadcasts."""
    service.start()
    app = make_app(service.settings)
    assert app.control.ping(timeout=3) == []
    app.close()


def test_a_new_sqlite_file_is_its_owners_alone(tmp_path: Path) -> None:
    """Threat `other users`: contexts and reasons are in it, and in the files that SQLite keeps beside it."""
    before = os.umask(0o022)
    try:
        url = f"sqlite:///{tmp_path}/folder/pool.db"
        migrate.upgrade(url)
        database = Database(url)
        with database.engine.begin():
            modes = {each.name: each.stat().st_mode & 0o777 for each in (tmp_path / "folder").iterdir()}
        assert modes.keys() >= {"pool.db", "pool.db-wal", "pool.db-shm"}
        assert set(modes.values()) == {0o600}
        (tmp_path / "folder/pool.db").chmod(0o640)  # an operator's choice
        database.dispose()
        database.read(database.now)
        assert (tmp_path / "folder/pool.db").stat().st_mode & 0o777 == 0o640
        database.dispose()
    finally:
        os.umask(before)


def test_the_demo_listens_on_loopback_only(tmp_path: Path) -> None:
    """Threat `Flower`: the demo has an HTTP server of its own."""
    demo = subprocess.Popen(
        [sys.executable, DEMO, "--sensors=20", "--seconds=3", "--json"],
        cwd=tmp_path,
        env=os.environ.copy(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        seen = until("its server", lambda: listening(psutil.Process(demo.pid)) or demo.poll() is not None)
        assert seen == {"127.0.0.1"}
    finally:
        kill_tree(demo)


@pytest.mark.parametrize(
    ("url", "verified"),
    [
        ("rediss://h/0", "ssl_cert_reqs=required"),
        ("rediss://h/0?ssl_ca_certs=/ca.pem", "ssl_cert_reqs=required"),
        ("rediss://h/0?ssl_cert_reqs=none", "ssl_cert_reqs=none"),
    ],
)
def test_tls_to_redis_checks_certificates(url: str, verified: str) -> None:
    """Least privilege: kombu by itself checks none; what somebody chose stays."""
    import ssl

    from sensorpool import Settings
    from sensorpool.leases.redis_store import connect
    from sensorpool.publish import wire
    from sensorpool.publish.broker import Connection

    settings = Settings.load(redis_url=url)
    assert wire.broker_url(settings.broker).endswith(verified)
    expected = ssl.CERT_NONE if "none" in verified else ssl.CERT_REQUIRED
    connection = Connection(wire.broker_url(settings.broker))
    assert connection.ssl["ssl_cert_reqs"] == expected
    pooled = connect(url).connection_pool
    assert pooled.connection_class(**pooled.connection_kwargs).cert_reqs == expected


def test_tls_urls_are_handed_on() -> None:
    """Least privilege: amqps checks certificates by itself; PostgreSQL gets its sslmode."""
    from sensorpool import Settings
    from sensorpool.publish.broker import Connection

    url = "postgresql+psycopg://u:secret@h/x?sslmode=verify-full&sslrootcert=/ca.pem"
    settings = Settings.load(database_url=url, redis_url="rediss://h/0", broker_url="amqps://u:p@h//")
    database = Database(settings.database_url)
    _, arguments = database.engine.dialect.create_connect_args(database.engine.url)
    assert (arguments["sslmode"], arguments["sslrootcert"]) == ("verify-full", "/ca.pem")
    connection = Connection(settings.broker)
    assert connection.transport
    assert connection.ssl
    database.dispose()
