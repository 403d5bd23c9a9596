"""No callback runs a task that is not allowed by what Celery reads beside the task's name, with a real worker."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from harness.scripted import land
from harness.service import Service
from harness.until import until
from sensorpool import Settings
from sensorpool.errors import Refused
from sensorpool.publish import canvas
from sensorpool.store import callback_rows
from sensorpool.store.schema import sensor_instance

SHOP = """
from celery import Celery

app = Celery("shop", broker="{redis}", backend="{redis}")
app.conf.update(task_default_queue="shop", broker_transport_options={{"global_keyprefix": ""}})

def told(name):
    open("{folder}/ran", "a").write(name + "\\n")

@app.task(name="shop.allowed", bind=True)
def allowed(self, *args, **kwargs):
    told("allowed " + str(self.request.headers))
    return args

@app.task(name="shop.retries", bind=True, default_retry_delay=0)
def retries(self, *args, **kwargs):
    told("retries")
    if not self.request.retries:
        raise self.retry()

@app.task(name="forbidden")
def forbidden(*args, **kwargs):
    told("forbidden")
"""
SCRIPTED = "harness.scripted.ScriptedSensor"
ALLOWED = "shop.allowed"
HEADERS = {"headers": {"task": "forbidden"}}
FORGED = {"task": ALLOWED, "args": [], "kwargs": {}, "options": {"queue": "shop", **HEADERS}}
PLAIN = {"task": ALLOWED, "args": [], "kwargs": {}, "options": {"queue": "shop"}}
FORBIDDEN = {"task": "forbidden", "args": [], "kwargs": {}, "options": {"queue": "shop"}}


def linked(*following: dict[str, Any]) -> dict[str, Any]:
    return {**PLAIN, "options": {"queue": "shop", "link": list(following)}}


def structure(kind: str, options: Any = None, **kwargs: Any) -> dict[str, Any]:
    return {"task": f"celery.{kind}", "subtask_type": kind, "args": [], "kwargs": kwargs, "options": options or {}}


CASES: dict[str, dict[str, Any]] = {
    "its own": FORGED,
    "a link": linked(FORGED),
    "a link of a link": linked(linked(FORGED)),
    "a step of a chain": {**PLAIN, "options": {"queue": "shop", "chain": [FORGED]}},
    "of a chain in a link": linked(structure("chain", tasks=[FORGED, PLAIN])),
    "of a group in a link": linked(structure("group", tasks=[PLAIN, FORGED])),
    "of a chord in a link": linked(structure("chord", header=[FORGED], body=PLAIN, kwargs={})),
    "the body of a chord in a link": linked(structure("chord", header=[PLAIN], body=FORGED, kwargs={})),
    "in pairs": linked({**PLAIN, "options": [["queue", "shop"], ["headers", {"task": "forbidden"}]]}),
    "of the headers that a retry has": {
        **PLAIN,
        "task": "shop.retries",
        "options": {"queue": "shop", "headers": HEADERS},
    },
    "of the stamps that a retry has": {
        **PLAIN,
        "task": "shop.retries",
        "options": {"queue": "shop", "headers": {"stamped_headers": ["headers"], "stamps": HEADERS}},
    },
    "a structure's options in its options": linked(
        structure("chain", {"options": {"link": [FORBIDDEN]}}, tasks=[PLAIN, PLAIN])
    ),
    "a link beside a chord's options": linked(
        {**structure("chord", header=[PLAIN], body=PLAIN, kwargs={}), "link": [FORBIDDEN]}
    ),
}


OTHERS = {"headers": {"traceparent": "00-1-2-01", "team": "x"}}


@pytest.fixture
def shop(make_service: Callable[..., Service], tmp_path: Path, redis_url: str) -> Service:
    """A pool, and one worker of an application with a task that the pool may not send."""
    (tmp_path / "shop.py").write_text(SHOP.format(redis=redis_url, folder=tmp_path))
    service = make_service(on_settled_tasks="shop.*", on_settled_queue="shop")
    service.start()
    service.process_of("shop", "worker", "--pool=solo", "--loglevel=INFO", "--queues=shop")
    return service


@pytest.mark.parametrize("forged", CASES.values(), ids=CASES)
@pytest.mark.parametrize("allowed", ["shop.*", ""], ids=["some tasks", "no task"])
def test_a_registration_with_it_is_refused(forged: dict[str, Any], allowed: str) -> None:
    step = {"task": "sensorpool.wait_for", "options": {"link": [forged]}}  # may be sent whatever the settings list
    for given in (forged, step):
        with pytest.raises(Refused, match="on_settled: "):
            canvas.check({"on_settled": given}, Settings.load(on_settled_tasks=allowed))


def test_a_planted_row_with_it_is_not_sent(shop: Service, tmp_path: Path) -> None:
    planted = [_plant(shop, tmp_path, f"n{number}", message) for number, message in enumerate(CASES.values())]
    good = {**PLAIN, "options": {**PLAIN["options"], **OTHERS, "link": [{**PLAIN, "options": {**OTHERS}}]}}
    shop.pool.register(SCRIPTED, {"folder": str(tmp_path), "name": "good"}, on_settled=good)
    for name in ("good", *(f"n{number}" for number in range(len(planted)))):
        land(tmp_path, name)

    def causes() -> dict[int, str | None]:
        return {row["instance_id"]: row["cause"] for row in shop.pool.database.read(callback_rows.waiting, 100)}

    until("a reason at each callback", lambda: causes().keys() == set(planted) and all(causes().values()), 60)
    until("the good one and its link", lambda: _ran(tmp_path).count("allowed") >= 2, 30)
    assert _ran(tmp_path).splitlines() == [f"allowed {OTHERS['headers']}"] * 2


def _ran(folder: Path) -> str:
    return (folder / "ran").read_text() if (folder / "ran").exists() else ""


def _plant(service: Service, folder: Path, name: str, message: dict[str, Any]) -> int:
    """Register a callback, and write another one over it."""
    one = service.pool.register(SCRIPTED, {"folder": str(folder), "name": name}, on_settled=PLAIN)
    with service.pool.database.engine.begin() as connection:
        row = update(sensor_instance).where(sensor_instance.c.id == one.id)
        connection.execute(row.values(on_settled=json.dumps({"on_settled": [message]})))
    return one.id
