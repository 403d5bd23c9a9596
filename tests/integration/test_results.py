"""Results reach the on_settled tasks of the user's Celery application, the results exchange, Flower and metrics."""

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import audit
from harness.scripted import land, pokes
from harness.service import Service, kill_tree
from harness.until import until
from sensorpool.model.states import State
from sensorpool.publish import listen
from tests.integration.test_main_run import SCRIPTED, register

USER_APP = """
import json, os
from celery import Celery

app = Celery("theirs", broker=os.environ["THEIR_BROKER"])

@app.task(name="theirs.go_on")
def go_on(result, *args, **kwargs):
    with open(os.environ["THEIR_FILE"], "a") as told:
        told.write(json.dumps([result, args, kwargs]) + "\\n")
"""


@pytest.fixture
def theirs(tmp_path: Path, redis_url: str) -> Iterator[Path]:
    """A user's own Celery worker; its task writes its arguments to this file."""
    (tmp_path / "theirs.py").write_text(USER_APP)
    told = tmp_path / "told.jsonl"
    environment = os.environ | {"THEIR_BROKER": redis_url, "THEIR_FILE": str(told), "PYTHONPATH": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "theirs", "worker", "--pool=solo", "--hostname=theirs@%h"],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield told
    kill_tree(process)


def test_on_settled_tells_the_users_own_worker(
    make_service: Callable[..., Service], theirs: Path, tmp_path: Path
) -> None:
    service = make_service(on_settled_tasks="theirs.go_on")
    signature = {"task": "theirs.go_on", "args": [42], "kwargs": {"a": 1}, "options": {}, "immutable": False}
    instance = service.pool.register(
        SCRIPTED, {"folder": str(tmp_path), "name": "x"}, dag_id="d", task_id="t", run_id="r", on_settled=signature
    )
    land(tmp_path, "x")
    service.start()
    until("a line of the task", lambda: theirs.exists() and theirs.read_text().endswith("\n"))
    result, args, kwargs = json.loads(theirs.read_text().splitlines()[0])
    assert (result["id"], result["state"], result["dag_id"]) == (instance.id, "success", "d")
    assert result["xcom_value"] == {"name": "x"}
    assert (args, kwargs) == ([42], {"a": 1})


def test_results_are_routed_by_dag(service: Service, tmp_path: Path) -> None:
    register(service, tmp_path, count=9, groups=9)
    service.start()
    with listen(service.settings, "dag_1") as bodies:
        for number in range(9):
            land(tmp_path, f"g{number}")
        heard: list[dict[str, Any]] = []
        for body in bodies:
            heard.extend(body["settled"])
            if len(heard) >= 3:
                break
    assert {each["dag_id"] for each in heard} == {"dag_1"}


def test_flower_shows_ranges_and_small_results(service: Service, tmp_path: Path) -> None:
    register(service, tmp_path, count=6, groups=6)
    port = free_port()
    flower = service.process("flower", "--address=127.0.0.1", f"--port={port}", FLOWER_UNAUTHENTICATED_API="true")
    service.start()
    try:
        task = until("a finished job in Flower", lambda: _finished_job(port))
    finally:
        kill_tree(flower)
    assert task["args"].startswith("shardcodes ")
    assert "'groups': " in task["result"]
    assert "'poked': " in task["result"]


def test_metrics_of_a_worker(make_service: Callable[..., Service], tmp_path: Path) -> None:
    port = free_port()
    service = make_service(metrics_port=port)
    ids = register(service, tmp_path, count=9, groups=6)
    service.start()
    until("pokes", lambda: len(pokes(tmp_path)) == 6)
    for number in range(3):
        land(tmp_path, f"g{number}")
    service.pool.wait([ids[0], ids[1], ids[2]], 30)
    names = (
        'sensorpool_settled_total{ending="landed",state="success"} 6.0',
        "sensorpool_pokes_total",
        "sensorpool_pokes_saved_total",
        "sensorpool_poke_seconds_bucket",
        "sensorpool_lag_seconds_bucket",
        "sensorpool_sensing 3.0",  # as the worker saw it last
        "sensorpool_groups 3.0",
    )
    until("the metrics", lambda: all(name in text for text in [_metrics(port)] for name in names))


@pytest.mark.rabbitmq
def test_the_main_run_over_rabbitmq(make_service: Callable[..., Service], amqp_url: str, tmp_path: Path) -> None:
    service = make_service(broker_url=amqp_url)
    ids = register(service, tmp_path, count=60, groups=40)
    service.start(workers=2)
    until("a poke of every group", lambda: len(pokes(tmp_path)) == 40)
    heard: set[int] = set()
    with listen(service.settings) as bodies:
        for number in range(40):
            land(tmp_path, f"g{number}")
        assert set(service.pool.wait(ids, 60).values()) == {State.SUCCESS}
        for body in bodies:
            heard.update(each["id"] for each in body["settled"])
            if heard == set(ids):
                break
    assert audit.read(service.pool.database).is_clean


def free_port() -> int:
    """Return a port on loopback that is free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _finished_job(port: int) -> dict[str, Any] | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/tasks?state=SUCCESS", timeout=5) as answer:
            tasks = json.load(answer)
    except OSError:
        return None
    jobs = (t for t in tasks.values() if t["name"] == "sensorpool.poke_shard" and "poked" in (t["result"] or ""))
    return next((t for t in jobs if "tick" in t["kwargs"]), None)  # a job that a registration sends has no tick


def _metrics(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""
