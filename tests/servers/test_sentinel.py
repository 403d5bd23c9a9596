"""A pool whose Redis is named by Sentinels: it goes on with the replica when the primary dies, or stands still."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.scripted import land
from harness.servers.sentinels import Watched, watched_redis
from harness.service import Service
from harness.until import until
from tests.integration.test_main_run import register
from tests.support.scrapes import free_port


@pytest.fixture
def watched() -> Iterator[Watched]:
    with watched_redis() as servers:
        yield servers


@pytest.fixture
def service(watched: Watched, tmp_path: Path, postgres_database: str) -> Iterator[Service]:
    made = Service(tmp_path, postgres_database, watched.url)
    yield made
    made.stop()


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_a_failover(service: Service, watched: Watched, tmp_path: Path, fault: str) -> None:
    service.start(workers=2)
    ids = register(service, tmp_path, count=40, groups=20)
    land(tmp_path, "g0")
    until("what lands before", lambda: "success" in set(map(str, service.pool.wait(ids, 0).values())))
    getattr(watched.primary, fault)()
    struck = time.monotonic()
    until("the failover", watched.is_promoted, 60)
    for number in range(1, 20):
        land(tmp_path, f"g{number}")
    states = set(map(str, service.pool.wait(ids, 120).values()))
    assert states == {"success"}, service.logs()[-4000:]
    print(f"\n{fault}: all settled {time.monotonic() - struck:.1f} s after the primary was lost")
    until("a healthy pool", lambda: service.cli("health").returncode == 0, 60)
    new = register(service, tmp_path, count=1, groups=1, run_id="afterwards")
    assert set(map(str, service.pool.wait(new, 60).values())) == {"success"}


def test_doctor_and_health_know_it(service: Service, watched: Watched) -> None:
    service.start()
    until("health", lambda: service.cli("health").returncode == 0)
    said = service.cli("doctor").stdout
    assert watched.primary.password not in said
    assert "sentinel://" in said


def test_what_workers_tell_of_themselves_has_no_password(service: Service, watched: Watched, tmp_path: Path) -> None:
    """By remote control, which is off unless an overlay says otherwise, and on Flower's pages."""
    (tmp_path / "controlled.py").write_text("worker_enable_remote_control = True\n")
    overlay = {"SENSORPOOL_CONFIG_MODULE": "controlled"}
    service.start(**overlay)
    shown = {name: _inspect(service, name, overlay) for name in ("stats", "conf", "report")}
    port = free_port()
    service.process("flower", f"--port={port}", "--address=127.0.0.1", FLOWER_UNAUTHENTICATED_API="true", **overlay)
    root = f"http://127.0.0.1:{port}"
    until("Flower", lambda: _get(f"{root}/healthcheck"))
    until("its workers", lambda: "worker0@" in _get(f"{root}/api/workers?refresh=1"))
    [worker] = json.loads(_get(f"{root}/api/workers"))
    for path in ("/api/workers", f"/worker/{worker}", "/broker", "/workers"):
        shown[path] = _get(root + path)
    for name, text in shown.items():
        assert "sentinel" in text or name == "/workers", f"{name}: {text}"
        assert watched.primary.password not in text, name
    assert watched.primary.password not in service.logs()


def _inspect(service: Service, name: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "sensorpool", "inspect", name],
        env=os.environ | service.environment | environment,
        cwd=service.folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout + done.stderr


def _get(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def test_sentinels_that_know_no_such_redis(service: Service, watched: Watched) -> None:
    wrong = watched.url.replace("master_name=pool", "master_name=other")
    done = service.cli("health", SENSORPOOL_REDIS_URL=wrong)
    assert done.returncode == 1
    assert "other" in done.stdout
    assert watched.primary.password not in done.stdout + done.stderr
