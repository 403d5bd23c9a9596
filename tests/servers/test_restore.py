"""A backup by `pg_dump`, restored as `docs/backups.md` says: nothing waits in vain, and no id is another's."""

import os
import subprocess
import time
from pathlib import Path

import psycopg
import pytest

from harness.scripted import land
from harness.servers import Missing
from harness.servers.debian import DebianPostgresServer
from harness.service import Service
from harness.until import until
from sensorpool.errors import Unknown
from sensorpool.store.migrate import upgrade
from tests.integration.test_main_run import register
from tests.servers.conftest import Serve, lacking


def test_a_backup_is_restored(serve: Serve, redis_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        server = DebianPostgresServer()
    except Missing as missing:
        lacking(missing)
    backup = tmp_path / "pool.dump"
    with server:
        upgrade(server.url)
        service = serve(server.url, redis_url)
        service.start()
        waiting = register(service, tmp_path, count=20, groups=10)
        land(tmp_path, "g0")
        until("two that have ended before the backup", lambda: ended(service, waiting) == 2)
        tool(server, "pg_dump", "--format=custom", f"--file={backup}")
        for number in range(1, 5):
            land(tmp_path, f"g{number}")
        until("eight that have ended since", lambda: ended(service, waiting) == 10)
        since = register(service, tmp_path, count=4, groups=4, run_id="since")
        stop(service)

        began = time.monotonic()
        with psycopg.connect(server.url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        tool(server, "pg_restore", f"--dbname={server.url.replace('+psycopg', '')}", "--no-owner", str(backup))
        restored = service.cli("db", "restored")
        assert restored.returncode == 0, restored.stderr
        service.start()
        until("those that had ended since end again", lambda: ended(service, waiting) == 10)
        with capsys.disabled():
            print(f"\nall that holds has ended {time.monotonic() - began:.1f} s after the restore began")

        with pytest.raises(Unknown):
            service.pool.get(since[0])
        new = register(service, tmp_path, count=20, groups=10, run_id="new")
        assert not {*new} & {*since, *waiting}
        for number in range(5, 10):
            land(tmp_path, f"g{number}")
        assert set(map(str, service.pool.wait([*waiting, *new], 60).values())) == {"success"}, service.logs()[-3000:]
        until("a healthy pool", lambda: service.cli("health").returncode == 0, 30)


def ended(service: Service, ids: list[int]) -> int:
    """Count the instances that have ended well."""
    return sum(str(state) == "success" for state in service.pool.wait(ids, 0).values())


def stop(service: Service) -> None:
    service.stop()
    until("an empty roster", lambda: not service.pool.workers(), 30)


def tool(server: DebianPostgresServer, name: str, *arguments: str) -> None:
    """Run a program of the server's own version; a dump is of its one database."""
    url = server.url.replace("+psycopg", "")
    more = [url] if name == "pg_dump" else []
    subprocess.run(
        [str(server._bin / name), *arguments, *more], check=True, env=os.environ | {"PGCONNECT_TIMEOUT": "10"}
    )
