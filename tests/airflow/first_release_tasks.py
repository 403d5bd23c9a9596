"""Runs with the code of the first release (`tests.support.released`): says as JSON what it writes for tasks that wait.

What is of the moment (times, ids) is made the same each time.
"""

import json
import time
from types import SimpleNamespace
from typing import Any

from airflow.sdk.exceptions import TaskDeferred
from sensorpool.airflow.saw import Saw
from sensorpool.settings import Settings
from sensorpool.states import Ending, State

from sensorpool.airflow import intercept, slot
from sensorpool.airflow.configuration import AirflowSettings
from tests.airflow.running import Flag, as_runner, context_of, in_dag

NOW = 1_700_000_000.25
ENDS = {
    "landed": Saw(State.SUCCESS, Ending.LANDED),
    "landed with a value": Saw(State.SUCCESS, Ending.LANDED, None, {"__type__": "tuple", "value": ["a", 1]}),
    "error": Saw(State.FAILED, Ending.POKE_ERROR, "ValueError: no such day"),
    "fail": Saw(State.FAILED, Ending.FAIL, "AirflowFailException: never"),
    "timeout": Saw(State.FAILED, Ending.TIMEOUT, "its timeout of 3600 s has passed"),
    "skip": Saw(State.SKIPPED, Ending.SKIP, "AirflowSkipException: not today"),
    "cancelled": Saw(State.CANCELLED, Ending.CANCELLED, "its task was marked or cleared in Airflow"),
    "handed back": Saw(State.CANCELLED, Ending.HANDED_BACK, "drained"),
}


def main() -> None:
    registered: list[Any] = []
    instance = SimpleNamespace(id=7, opened=True)
    slot.pool = lambda: SimpleNamespace(settings=Settings.load(sensors_enabled="tests.airflow.running.Flag"))
    slot.register = lambda registration: registered.append(registration) or instance
    slot.airflow_settings = lambda: AirflowSettings(enabled=True)
    intercept.is_enabled = lambda: True
    intercept.install()
    task = in_dag(Flag, flag="orders", poke_interval=60, timeout=3600)
    sensor = deferred(lambda: as_runner(task, "execute", context_of(task)))
    [registration] = registered
    sensor["registration"] = [registration.sensor, dict(registration.poke_context)]
    named = {"direct": False, "timeout": None, "started": NOW}
    found = {
        "sensor": sensor,
        "job": deferred(lambda: slot.leave(task, instance, **named, job="job-7")),
        "run": deferred(lambda: slot.leave(task, instance, **named)),
        "events": {name: saw.as_payload() for name, saw in ENDS.items()},
    }
    print(json.dumps(found, indent=1))


def deferred(leave: Any) -> dict[str, Any]:
    real, time.time = time.time, lambda: NOW
    try:
        leave()
    except TaskDeferred as left:
        kwargs = left.kwargs | {"started": round(left.kwargs["started"], 2)}
        return {"trigger": left.trigger.serialize(), "method": left.method_name, "kwargs": kwargs}
    finally:
        time.time = real
    raise AssertionError("it kept its slot")


if __name__ == "__main__":
    main()
