"""The logs of worker and beat: lines in our format, with their fields."""

import json
from collections.abc import Iterator
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest

from harness.scripted import land, pokes
from harness.service import Service, children
from harness.until import until
from sensorpool.store.migrate import upgrade
from tests.integration.test_main_run import register

EVENT = "no worker takes jobs as fast as ticks come; no more are sent until fewer wait"


@pytest.fixture
def service(tmp_path: Path, redis_url: str) -> Iterator[Service]:
    """A service whose beat soon logs a warning, because it has no worker."""
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    upgrade(url)
    service = Service(tmp_path, url, redis_url, tick=0.2)
    yield service
    service.stop()


def said_by_beat(service: Service, **environment: str) -> str:
    service.beat(**environment)
    lines: list[str] = until("beat's line", lambda: [line for line in service.logs().splitlines() if EVENT in line])
    return lines[0]


def test_a_line_of_beat_has_its_fields(service: Service) -> None:
    line = said_by_beat(service)
    assert line.endswith(f" warning sensorpool.service.beat: {EVENT} queue=sensorpool"), line


def test_beat_logs_json_where_it_is_told_to(service: Service) -> None:
    entry: dict[str, Any] = json.loads(said_by_beat(service, SENSORPOOL_LOG_FORMAT="json"))
    del entry["time"]
    assert entry == {
        "host": gethostname(),
        "pid": service.processes[0].pid,
        "worker": f"beat@{gethostname()}",
        "level": "warning",
        "logger": "sensorpool.service.beat",
        "event": EVENT,
        "queue": "sensorpool",
    }


def test_what_a_worker_doubts_at_its_start_has_its_fields(service: Service) -> None:
    service.worker(SENSORPOOL_SHARS="4")
    [line] = until("its line", lambda: warnings(service))
    assert line.endswith(': there is no such setting setting="SENSORPOOL_SHARS (did you mean SENSORPOOL_SHARDS?)"')


def warnings(service: Service) -> list[str]:
    return [line for line in service.logs().splitlines() if " warning sensorpool.service.signals: " in line]


def test_the_log_has_what_the_settings_say_and_no_line_for_a_job_that_finds_nothing(
    service: Service, tmp_path: Path
) -> None:
    service.process("worker", "--concurrency=1", "--hostname=ours@%h", SENSORPOOL_LOG_FORMAT="json")
    service.beat()
    until("jobs of each range", service.is_ready)
    register(service, tmp_path, 1)
    until("two pokes", lambda: len(pokes(tmp_path)["g0"]) > 1)
    assert '"event": "poked"' not in service.logs(), "they found nothing"
    land(tmp_path, "g0")
    lines: list[str] = until(
        "the landing", lambda: [line for line in service.logs().splitlines() if '"event": "poked"' in line]
    )
    entry = json.loads(lines[0])
    assert (entry["level"], entry["logger"]) == ("info", "sensorpool.service.tasks")
    assert (entry["host"], entry["worker"]) == (gethostname(), f"ours@{gethostname()}")
    assert entry["pid"] in {child.pid for child in children(service.processes[0])}
    assert "sensorpool.poke_shard[" not in service.logs(), "a line of Celery's for each job"


@pytest.mark.parametrize(("option", "is_told"), [((), False), (("--loglevel=INFO",), True)], ids=["settings", "option"])
def test_the_option_of_celery_goes_before_the_level_of_the_settings(
    service: Service, option: tuple[str, ...], is_told: bool
) -> None:
    service.process("worker", "--concurrency=1", *option, SENSORPOOL_LOG_LEVEL="WARNING")
    service.beat()
    until("jobs of each range", service.is_ready)
    assert (" info celery.apps.worker: " in service.logs()) is is_told
