"""The test servers do what the fault tests take for granted."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import kombu
import psutil
import psycopg
import pytest
import redis
from sqlalchemy import create_engine, text

from harness.servers import Elsewhere, PostgresServer, RedisServer, Server, fresh_database, guard
from harness.until import until
from tests.conftest import delete_our_keys

KINDS = [PostgresServer, RedisServer]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with request.param() as server:
        yield server


def _listening(pid: int) -> set[str]:
    """Say on which addresses a process and its children listen."""
    found = set()
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # PostgreSQL's children come and go
            found |= {c.laddr.ip for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    return found


def test_it_answers_on_loopback_only(server: Server) -> None:
    server.check()
    assert _listening(server.pid) == {"127.0.0.1"}


def test_it_comes_back_on_its_port_after_a_kill_and_after_a_stop(server: Server) -> None:
    url = server.url
    server.kill()
    with pytest.raises(server.not_ready):
        server.check()
    server.start()
    server.check()
    server.restart()
    server.check()
    assert server.url == url


def test_starting_a_running_server_changes_nothing(server: Server) -> None:
    pid = server.pid
    server.start()
    assert server.pid == pid


def test_a_frozen_server_accepts_and_says_nothing(server: Server) -> None:
    server.pause()
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
        client.sendall(b"PING\r\n")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
    server.start()
    server.check()


def test_a_frozen_server_can_be_killed_and_closed(server: Server) -> None:
    server.pause()
    server.kill()
    assert not server.running
    server.start()
    server.pause()
    server.close()
    assert not server.folder.exists()


def test_freezing_postgres_freezes_connections_that_are_open() -> None:
    with PostgresServer() as server, psycopg.connect(server.url.replace("+psycopg", "")) as connection:
        server.pause()
        # PostgreSQL may have processes that had ended as it froze, and which it cannot reap
        assert {process.status() for process in server.processes()} - {psutil.STATUS_ZOMBIE} == {psutil.STATUS_STOPPED}
        server.resume()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_what_was_committed_outlives_a_kill() -> None:
    with PostgresServer() as server:
        engine = create_engine(server.url)
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE kept (n int)"))
            connection.execute(text("INSERT INTO kept VALUES (1)"))
        server.kill()
        server.start()
        engine.dispose()
        with engine.connect() as connection:
            assert connection.execute(text("SELECT n FROM kept")).scalar_one() == 1
        engine.dispose()


def test_settings_reach_the_server() -> None:
    settings = {"maxmemory": "5mb", "maxmemory-policy": "allkeys-lru"}
    with RedisServer(settings) as server, redis.Redis.from_url(server.url, decode_responses=True) as client:
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "allkeys-lru"}


def test_a_stranger_is_refused() -> None:
    with PostgresServer() as postgres, RedisServer() as store:
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(host="127.0.0.1", port=postgres.port, user="sensorpool", password="guessed")
        with redis.Redis(port=store.port, retry=None) as client, pytest.raises(redis.AuthenticationError):
            client.ping()


def test_servers_end_when_their_run_is_killed() -> None:
    """The run dies with -9 while its PostgreSQL is frozen; nothing is left, neither a process nor a folder."""
    program = (
        "import sys, time\n"
        "from harness.servers import PostgresServer, RedisServer\n"
        "servers = [PostgresServer().start(), RedisServer().start()]\n"
        "servers[0].pause()\n"
        "print(*(server.folder for server in servers))\n"
        "print(*(process.pid for server in servers for process in server.processes()), flush=True)\n"
        "sys.stdin.read()\n"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdin is not None
    assert run.stdout is not None
    folders = [Path(word) for word in run.stdout.readline().split()]
    processes = [psutil.Process(int(word)) for word in run.stdout.readline().split()]
    assert len(folders) == 2
    assert len(processes) > 3
    run.send_signal(signal.SIGKILL)
    run.wait()
    run.stdin.close()
    run.stdout.close()
    until("all processes have ended", lambda: not any(guard.lives(process) for process in processes))
    until("all folders are gone", lambda: not any(folder.exists() for folder in folders))


def test_two_databases_of_one_template_are_apart(postgres_url: str, postgres_server: Server | Elsewhere) -> None:
    with fresh_database(postgres_server) as template:
        _run(template, "CREATE TABLE t (n int)")
        with fresh_database(postgres_server, template) as one, fresh_database(postgres_server, template) as other:
            _run(one, "INSERT INTO t VALUES (1)")
            assert _run(other, "SELECT count(*) FROM t") == 0
            assert len({one, other, template, postgres_url}) == 4


def test_only_our_keys_are_deleted_on_somebody_elses_redis() -> None:
    with RedisServer() as server, redis.Redis.from_url(server.url) as client:
        client.mset({"sensorpool:1:lease": "ours", "_kombu.binding.celery": "ours", "theirs": "theirs"})
        delete_our_keys(server.url)
        assert client.keys() == [b"theirs"]


def test_a_server_that_the_environment_names_is_not_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENSORPOOL_TEST_DATABASE_URL", "postgresql://somebody:secret@db.example/main")
    named = Elsewhere.named_by("SENSORPOOL_TEST_DATABASE_URL", driver="postgresql+psycopg")
    assert named is not None
    assert named.url == "postgresql+psycopg://somebody:secret@db.example/main"
    assert named.start() is named
    with pytest.raises(pytest.skip.Exception, match="SENSORPOOL_TEST_DATABASE_URL"):
        named.kill()


def test_mariadb_answers(mariadb_url: str) -> None:
    assert _run(mariadb_url, "SELECT VERSION() LIKE '%MariaDB%'") == 1


def test_rabbitmq_answers_on_loopback_only(amqp_url: str, rabbitmq_server: Server | Elsewhere) -> None:
    with kombu.Connection(amqp_url) as connection:
        connection.connect()
    if isinstance(rabbitmq_server, Server):
        assert _listening(rabbitmq_server.pid) == {"127.0.0.1"}


def _run(url: str, statement: str) -> object:
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            result = connection.execute(text(statement))
            return result.scalar() if result.returns_rows else None
    finally:
        engine.dispose()
