"""A worker that remote control pauses and resumes, as Flower does: ``cancel_consumer``, ``add_consumer``."""

from pathlib import Path

import redis

from harness.scripted import land
from harness.service import Service
from harness.until import until
from sensorpool.admin import findings
from sensorpool.publish import wire
from tests.integration.test_main_run import register

OVERLAY = {"SENSORPOOL_CONFIG_MODULE": "controlled"}


def control(service: Service, command: str) -> None:
    """Send a command to all workers, until one has answered."""
    queue = wire.queue_of(service.settings)
    until(command, lambda: service.process("control", command, queue, **OVERLAY).wait(60) == 0)


def lost(service: Service, client: redis.Redis) -> bool:
    """Cut all connections unless the worker has said that it lost one.

    One cut is not enough: a worker that waits for no message just then connects anew with its next command, and says
    nothing.
    """
    if "connection to broker lost" in service.logs().lower():
        return True
    client.client_kill_filter(_type="normal", skipme=True)
    return False


def test_a_resumed_worker_is_healthy_and_takes_jobs_after_a_lost_connection(
    service: Service, redis_url: str, tmp_path: Path
) -> None:
    (service.folder / "controlled.py").write_text("worker_enable_remote_control = True\n")
    service.start(**OVERLAY)
    control(service, "cancel_consumer")
    untaken = until("health to say so", lambda: [line for line in findings.health(service.pool) if "the queue" in line])
    assert untaken[0].startswith("no worker takes jobs from the queue sensorpool: worker0@")
    control(service, "add_consumer")
    until("health", lambda: not findings.health(service.pool))
    with redis.Redis.from_url(redis_url) as client:
        until("the loss", lambda: lost(service, client), every=1)
    ids = register(service, tmp_path, count=1, groups=1)
    land(tmp_path, "g0")
    assert [str(state) for state in service.pool.wait(ids, 60).values()] == ["success"], service.logs()[-3000:]
    until("health", lambda: not findings.health(service.pool))
