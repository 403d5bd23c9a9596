"""A sensor in reschedule mode that resumes: the pool's result counts if its condition and limits are still the same."""

import datetime as dt
import json
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest

pytest.importorskip("airflow")

from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool import Settings
from sensorpool.airflow.compat.exceptions import (
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.result import InstanceResult
from sensorpool.airflow.task import deferral, patch, reschedule_condition, reschedule_limits
from sensorpool.airflow.task.poke_errors import PokeFailed
from sensorpool.model.states import Ending, State
from tests.airflow.running import PokesLog, as_runner, context_of, in_dag
from tests.airflow.versions import deserialize, serialize


class Waits(BaseSensorOperator):
    """Takes an argument and what it finds elsewhere, and notes what it is poked with."""

    template_fields = ("path", "also")
    elsewhere: ClassVar[Callable[[], Any]] = staticmethod(lambda: None)
    poked: ClassVar[PokesLog] = PokesLog()
    lands: ClassVar[tuple[str, ...]] = ()
    told: ClassVar[Any] = Mock(lands=(), error=None)  # of the standard library: it is no part of the condition

    def __init__(self, *, path: str = "old", also: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.path = path
        self.also = also
        self.found = type(self).elsewhere()

    def poke(self, context: Any) -> bool:
        """Land on what is there."""
        self.poked.append(self.path)
        if self.told.error is not None:
            raise self.told.error
        return self.path in (*self.lands, *self.told.lands)


class Declares(Waits):
    """Declares that it takes nothing from elsewhere."""

    poke_context_fields = ("path", "also")


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that takes each registration; the classes are patched."""
    settings = Settings.load(sensors_enabled=f"{__name__}.Waits,{__name__}.Declares")
    monkeypatch.setattr(deferral, "pool", lambda: SimpleNamespace(settings=settings))
    monkeypatch.setattr(deferral, "register", lambda _: SimpleNamespace(id=1, opened=True))
    monkeypatch.setattr(deferral, "airflow_settings", lambda: AirflowSettings(enabled=True))
    monkeypatch.setattr(patch, "is_enabled", lambda: True)
    monkeypatch.setattr(Waits, "poked", PokesLog())
    monkeypatch.setattr(Waits, "elsewhere", staticmethod(lambda: None))
    monkeypatch.setattr(Waits, "lands", ())
    patch.install()


def leaves(sensor: Any) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as deferred:
        as_runner(sensor, "execute", context_of(sensor))
    Waits.poked.clear()
    return deferred.value


def resumes(
    sensor: Any,
    left: TaskDeferred,
    state: State = State.SUCCESS,
    ending: Ending = Ending.LANDED,
    **arguments: Any,
) -> Any:
    kept: dict[str, Any] = deserialize(json.loads(json.dumps(serialize(left.kwargs)))) | arguments
    event = InstanceResult(state, ending, "because").as_payload()
    return as_runner(sensor, "resume_execution", patch.RESUME, {"event": event, **kept}, context_of(sensor))


def waiting(mode: str = "reschedule", cls: type = Waits, **arguments: Any) -> Any:
    return in_dag(cls, mode=mode, **arguments).prepare_for_execution()


def test_what_still_waits_for_the_same_ends_as_the_pool_saw() -> None:
    left = leaves(waiting(timeout=5))
    assert resumes(waiting(timeout=5), left) is None
    with pytest.raises(AirflowSensorTimeout):
        resumes(waiting(timeout=5), left, State.FAILED, Ending.TIMEOUT)
    assert Waits.poked == []


@pytest.mark.parametrize(
    ("state", "ending"),
    [
        (State.SUCCESS, Ending.LANDED),
        (State.FAILED, Ending.POKE_ERROR),
        (State.FAILED, Ending.FAIL),
        (State.SKIPPED, Ending.SKIP),
        (State.FAILED, Ending.TIMEOUT),
    ],
)
def test_what_waits_for_something_else_now_pokes_that(state: State, ending: Ending) -> None:
    """Its DAG file was corrected, say."""
    left = leaves(waiting())
    with pytest.raises(AirflowRescheduleException):
        resumes(waiting(path="new"), left, state, ending)
    assert Waits.poked == ["new"]


def test_and_lands_if_that_is_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    left = leaves(waiting())
    monkeypatch.setattr(Waits, "lands", ("new",))
    assert resumes(waiting(path="new"), left, State.FAILED, Ending.TIMEOUT) is None
    assert "it waits for something else now" in capsys.readouterr().out


def test_what_its_templates_and_its_constructor_say(monkeypatch: pytest.MonkeyPatch) -> None:
    template = "{{ var.value.place }}"
    sensor = waiting(path=template)
    sensor.path = "rendered"
    left = leaves(sensor)
    for rendered, pokes in (("rendered", []), ("changed", ["changed"])):
        sensor = waiting(path=template)
        sensor.path = rendered
        if pokes:
            with pytest.raises(AirflowRescheduleException):
                resumes(sensor, left)
        else:
            resumes(sensor, left)
        assert Waits.poked == pokes
    left = leaves(waiting())
    monkeypatch.setattr(Waits, "elsewhere", staticmethod(lambda: dt.date(2026, 11, 3)))
    with pytest.raises(AirflowRescheduleException):
        resumes(waiting(), left)
    assert Waits.poked == ["old"]


def test_what_cannot_be_said_any_more_pokes_for_itself() -> None:
    left = leaves(waiting())
    with pytest.raises(AirflowRescheduleException):
        resumes(waiting(path=object()), left)


def test_in_poke_mode_and_of_the_version_before_what_the_pool_saw_counts() -> None:
    left = leaves(waiting("poke"))
    assert reschedule_condition.NAME not in left.kwargs
    resumes(waiting("poke", path="new"), left)
    resumes(waiting(path="new"), left)
    assert Waits.poked == []


def test_how_it_is_written_does_not_matter() -> None:
    left = leaves(waiting(path="old", also={"a": 1}, poke_interval=10))
    resumes(waiting(also={"a": 1}, path="old", poke_interval=20, retries=3), left)
    assert Waits.poked == []


@pytest.mark.parametrize(
    ("path", "also", "direct"),
    [
        ("plain", None, True),
        ("plain", ["a", {"b": 1}, ("c",)], True),
        ("{{ ds }}/{{ params.x }}/{{ dag_run.conf['y'] }}", ["a", "{{ ts_nodash }}"], True),
        ("{{ var.value.place }}", None, False),
        ("a", {"key": ["{{ conn.x.host }}"]}, False),
        ("{{ macros.datetime.now() }}", None, False),
        ("{{ ti.xcom_pull('a') }}", None, False),
        ("{{ what is this", None, False),
        ("{% set day = var.value.day %}{{ day }}", None, False),
        ("of_a_file.sql", None, False),
    ],
)
def test_a_success_without_a_worker_only_where_templates_say_the_same(path: str, also: Any, direct: bool) -> None:
    for mode in ("reschedule", "poke"):
        sensor = waiting(mode, Declares, path=path, also=also)
        sensor.path = path if path in ("plain", "a") else "rendered"
        sensor.also = _rendered(also)
        assert leaves(sensor).trigger.direct is (direct or mode == "poke")


def test_nor_where_its_constructor_takes_something_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Variable, say: the one that is built where the task resumes has the last word."""
    monkeypatch.setattr(Waits, "elsewhere", staticmethod(lambda: "old prefix"))
    assert leaves(waiting("poke")).trigger.direct is True
    left = leaves(waiting())
    assert left.trigger.direct is False
    assert resumes(waiting(), left) is None
    monkeypatch.setattr(Waits, "elsewhere", staticmethod(lambda: "new prefix"))
    with pytest.raises(AirflowRescheduleException):
        resumes(waiting(), left)
    assert Waits.poked == ["old"]


def _rendered(value: Any) -> Any:
    match value:
        case str():
            return "rendered" if "{{" in value else value
        case list() | tuple():
            return type(value)(map(_rendered, value))
        case dict():
            return {name: _rendered(item) for name, item in value.items()}
    return value


HOURS = 3600.0
TIMED_OUT = (State.FAILED, Ending.TIMEOUT)
SKIPPED_OUT = (State.SKIPPED, Ending.TIMEOUT)
ERROR = (State.FAILED, Ending.POKE_ERROR)


@pytest.mark.parametrize(
    ("registered", "now", "end", "raised"),
    [
        ({}, {"timeout": 12 * HOURS}, TIMED_OUT, AirflowRescheduleException),
        ({"soft_fail": True}, {"timeout": 12 * HOURS, "soft_fail": True}, SKIPPED_OUT, AirflowRescheduleException),
        ({}, {"timeout": 3 * HOURS}, TIMED_OUT, AirflowSensorTimeout),
        ({}, {"soft_fail": True}, TIMED_OUT, AirflowSkipException),
        ({"soft_fail": True}, {}, SKIPPED_OUT, AirflowSensorTimeout),
        ({}, {"silent_fail": True, "timeout": 12 * HOURS}, ERROR, AirflowRescheduleException),
        ({}, {"never_fail": True}, ERROR, AirflowSkipException),
        ({"never_fail": True}, {}, (State.SKIPPED, Ending.POKE_ERROR), ValueError),
        ({}, {"never_fail": True}, (State.FAILED, Ending.FAIL), AirflowSkipException),
        ({"soft_fail": True}, {}, (State.SKIPPED, Ending.FAIL), AirflowFailException),
    ],
    ids=str,
)
def test_limits_that_were_corrected_meanwhile_hold(
    monkeypatch: pytest.MonkeyPatch,
    registered: dict[str, Any],
    now: dict[str, Any],
    end: tuple[State, Ending],
    raised: type[BaseException],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As natively at the next poke."""
    limits = {"timeout": 6 * HOURS}
    left = leaves(waiting(**limits | registered))
    errors = {Ending.POKE_ERROR: ValueError("no"), Ending.FAIL: AirflowFailException("no")}
    monkeypatch.setattr(Waits.told, "error", errors.get(end[1]))
    with pytest.raises(raised):
        resumes(waiting(**limits | now), left, *end, started=time.time() - 6 * HOURS - 1)
    assert Waits.poked == ["old"]
    assert "when it registered (the pool saw" in capsys.readouterr().out


def test_a_poke_after_a_longer_timeout_may_land(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = leaves(waiting(timeout=60))
    monkeypatch.setattr(Waits.told, "lands", ("old",))
    assert resumes(waiting(timeout=90), left, *TIMED_OUT) is None
    assert "its timeout is 90.0 now, and was 60.0 when it registered" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("now", "end", "raised"),
    [
        ({"timeout": 12 * HOURS, "soft_fail": True}, ERROR, PokeFailed),
        ({"never_fail": True}, TIMED_OUT, AirflowSensorTimeout),
        ({"poke_interval": 5, "exponential_backoff": True}, TIMED_OUT, AirflowSensorTimeout),
        ({"timeout": 1, "soft_fail": True}, (State.SKIPPED, Ending.SKIP), AirflowSkipException),
        ({"timeout": 1}, (State.SUCCESS, Ending.LANDED), None),
    ],
    ids=str,
)
def test_an_end_that_other_limits_have_decided_counts(
    now: dict[str, Any], end: tuple[State, Ending], raised: type[BaseException] | None
) -> None:
    limits = {"timeout": 6 * HOURS}
    left = leaves(waiting(**limits))
    sensor = waiting(**limits | now)
    if raised is None:
        resumes(sensor, left, *end)
    else:
        with pytest.raises(raised):
            resumes(sensor, left, *end)
    assert Waits.poked == []


def test_in_poke_mode_a_timeout_is_that_of_registration() -> None:
    assert len(json.dumps(leaves(waiting(timeout=60)).kwargs)) < 250
    left = leaves(waiting("poke", timeout=60))
    assert reschedule_limits.NAME not in left.kwargs
    with pytest.raises(AirflowSensorTimeout):
        resumes(waiting("poke", timeout=90), left, *TIMED_OUT)
    assert Waits.poked == []
