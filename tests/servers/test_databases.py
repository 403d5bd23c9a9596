"""PostgreSQL behind PgBouncer, in several versions, and with a standby that takes over."""

import time
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from harness.scripted import land
from harness.servers import Missing, PostgresServer, Server, fresh_database
from harness.servers.debian import DebianPostgresServer, PgBouncerServer
from harness.until import until
from sensorpool.store.migrate import upgrade
from tests.faults.proxy import Proxy
from tests.integration.test_main_run import register
from tests.servers.conftest import Serve, lacking, whole_run

STREAMING = {"wal_level": "replica", "max_wal_senders": "5", "synchronous_standby_names": "*"}


def test_through_pgbouncer_in_transaction_mode(
    serve: Serve, postgres_server: PostgresServer, postgres_database: str, redis_url: str, tmp_path: Path
) -> None:
    try:
        bouncer = PgBouncerServer(postgres_server)
    except Missing as missing:
        lacking(missing)
    with bouncer:
        url = postgres_database.replace(f":{postgres_server.port}/", f":{bouncer.port}/")
        service = serve(url, redis_url)
        whole_run(service, tmp_path)
        single = [
            service.pool.register("harness.scripted.ScriptedSensor", {"folder": str(tmp_path), "name": f"g{n}"}).id
            for n in range(8)  # one at a time: its statements are not kept by sessions that change
        ]
        assert set(map(str, service.pool.wait(single, 60).values())) == {"success"}


@pytest.mark.parametrize("kind", [PostgresServer, DebianPostgresServer])
def test_each_version_that_is_here(
    serve: Serve, redis_url: str, tmp_path: Path, kind: type[PostgresServer], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        server = kind()
    except Missing as missing:
        lacking(missing)
    with server, fresh_database(server) as url:
        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            version = connection.execute("SHOW server_version").fetchone()
        with capsys.disabled():
            print(f"\nPostgreSQL {version}")
        upgrade(url)
        whole_run(serve(url, redis_url), tmp_path)


@pytest.mark.parametrize("found_by", ["name", "target_session_attrs"])
def test_a_standby_takes_over(serve: Serve, redis_url: str, tmp_path: Path, found_by: str) -> None:
    """The primary is killed and its standby promoted: whatever was committed is there, and the pool goes on."""
    try:
        primary = DebianPostgresServer(STREAMING)
    except Missing as missing:
        lacking(missing)
    with primary, DebianPostgresServer({**STREAMING, "synchronous_standby_names": ""}, of=primary) as standby:
        until("a standby that streams", lambda: _streams(primary))
        upgrade(primary.url)
        with Proxy(primary.port) as proxy:
            url = proxy.url(primary.url) if found_by == "name" else _either(primary, standby)
            service = serve(url, redis_url)
            service.start()
            ids = register(service, tmp_path, count=60, groups=20)
            land(tmp_path, "g0")
            until("what lands before", lambda: "success" in set(map(str, service.pool.wait(ids, 0).values())))
            primary.kill()
            struck = time.monotonic()
            standby.promote()
            proxy.target = standby.port
            for number in range(1, 20):
                land(tmp_path, f"g{number}")
            states = set(map(str, service.pool.wait(ids, 120).values()))
            assert states == {"success"}, service.logs()[-4000:]
            print(f"\nby {found_by}: all settled {time.monotonic() - struck:.1f} s after the primary was killed")
            until("a healthy pool", lambda: service.cli("health").returncode == 0, 60)


def _streams(primary: DebianPostgresServer) -> bool:
    with psycopg.connect(primary.url.replace("+psycopg", "")) as connection:
        found = connection.execute("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'").fetchone()
    return found is not None and found[0] == 1


def _either(primary: Server, standby: Server) -> str:
    """Return a URL of both servers, of which the one is meant that takes writes."""
    url = make_url(primary.url)
    hosts = [f"127.0.0.1:{each.port}" for each in (primary, standby)]
    plain = url.set(host="", port=None).update_query_dict({"host": hosts})
    return plain.update_query_dict({"target_session_attrs": "read-write"}).render_as_string(hide_password=False)
