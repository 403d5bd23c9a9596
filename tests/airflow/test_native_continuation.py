"""A sensor that was handed back: natively its limits count from the moment when it began to wait."""

import datetime as dt
import itertools
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

pytest.importorskip("airflow")

from airflow.sdk.bases import sensor as airflows
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from sensorpool import Settings
from sensorpool.airflow.compat import operators
from sensorpool.airflow.compat.exceptions import (
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    TaskDeferred,
)
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.result import InstanceResult
from sensorpool.airflow.task import deferral, native_continuation, patch
from sensorpool.model.states import Ending, State
from tests.airflow.running import Flag, Ti, as_runner, in_dag, under_runner

FLAG = "tests.airflow.running.Flag"
BACK = InstanceResult(State.CANCELLED, Ending.HANDED_BACK, "because").as_payload()


class Store(dict[str, Any]):
    """Airflow's task_state_store."""

    retention: ClassVar[list[dt.timedelta]] = []

    def set(self, key: str, value: Any, *, retention: dt.timedelta) -> None:
        """Keep a value."""
        self.retention.append(retention)
        self[key] = value


class Try:
    """One try of a task in reschedule mode, as Airflow runs it: a process for each poke."""

    def __init__(self, store: Any = None, **options: Any) -> None:
        self.store = Store() if store is None else store
        self.ti = Ti("dag", "wait")
        self.options = {"poke_interval": 30, "timeout": 600, "mode": "reschedule", **options}
        self.rescheduled: list[dt.datetime] = []

    def context(self) -> dict[str, Any]:
        """Return the template context of the next process."""
        first = self.rescheduled[0] if self.rescheduled else None
        ti = Ti(self.ti.dag_id, self.ti.task_id, id=self.ti.id)
        vars(ti)["get_first_reschedule_date"] = lambda _: first
        return {"ti": ti, "task_reschedule_count": len(self.rescheduled), "task_state_store": self.store}

    def process(self, run: Callable[[Any, dict[str, Any]], Any], cls: Any = Flag) -> Any:
        """Run one; return when it is poked next."""
        sensor = in_dag(cls, flag="x", **self.options)
        try:
            return run(sensor, self.context())
        except AirflowRescheduleException as asked:
            self.rescheduled.append(dt.datetime.now(dt.UTC))
            return asked.reschedule_date

    def resume(self, waited: float, cls: Any = Flag) -> Any:
        """Resume as what the pool has handed back."""
        kwargs = {"event": BACK, "started": time.time() - waited}
        return self.process(lambda s, context: as_runner(s, "resume_execution", patch.RESUME, kwargs, context), cls)

    def poke(self, cls: Any = Flag) -> Any:
        """Run the process of a later poke."""
        return self.process(lambda sensor, context: as_runner(sensor, "execute", context), cls)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A pool that takes each registration; the classes are patched."""
    found: list[Any] = []

    def register(registration: Any) -> Any:
        found.append(registration)
        return SimpleNamespace(id=1, opened=True)

    settings = Settings.load(sensors_enabled=f"{FLAG},{__name__}.Told")
    monkeypatch.setattr(deferral, "pool", lambda: SimpleNamespace(settings=settings))
    monkeypatch.setattr(deferral, "register", register)
    monkeypatch.setattr(deferral, "airflow_settings", lambda: AirflowSettings(enabled=True))
    monkeypatch.setattr(patch, "is_enabled", lambda: True)
    monkeypatch.setattr(patch, "_is_configured", lambda: True)
    monkeypatch.setattr(Told, "told", [])
    patch.install()
    return found


class Told(Flag):
    """Notes its timeout as it is told."""

    told: ClassVar[list[Any]] = []

    def poke(self, context: Any) -> bool:
        """Never land."""
        self.told.append(self.timeout)
        return False


@pytest.mark.parametrize("enabled", [True, False])
def test_a_timeout_counts_once_in_reschedule_mode(
    registered: list[Any], monkeypatch: pytest.MonkeyPatch, enabled: bool
) -> None:
    """Also where ``enabled`` is off by then."""
    monkeypatch.setattr(patch, "is_enabled", lambda: enabled)
    one = Try(timeout=600)
    assert one.resume(waited=500) is not None
    assert one.poke() is not None
    kept = one.store[native_continuation.KEY]
    kept["began"] -= 101  # time passes
    with pytest.raises(AirflowSensorTimeout, match=r"run duration of 60\d\..* timeout of 600"):
        one.poke()
    assert registered == []
    assert Store.retention[-1] == dt.timedelta(seconds=600, days=1)


def test_a_timeout_of_which_the_pool_took_all(registered: list[Any]) -> None:
    with pytest.raises(AirflowSensorTimeout):
        Try(timeout=600).resume(waited=601)
    with pytest.raises(AirflowSkipException):
        Try(timeout=600, soft_fail=True).resume(waited=601)


def test_it_is_told_its_timeout_as_it_was_given(registered: list[Any]) -> None:
    one = Try(timeout=dt.timedelta(seconds=600))
    one.resume(500, Told)
    one.poke(Told)
    assert Told.told == [600, 600]


def test_another_try_counts_anew(registered: list[Any]) -> None:
    one = Try()
    one.resume(500)
    one.ti = Ti("dag", "wait")
    one.rescheduled.clear()
    with pytest.raises(TaskDeferred):
        one.poke()
    assert registered[-1].timeout == pytest.approx(600, abs=5)


@pytest.mark.parametrize("store", ["none", "refuses"])
def test_without_airflows_store_it_goes_on(
    registered: list[Any], store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Refuses:
        def get(self, _: str) -> Any:
            raise RuntimeError("not today")

        def set(self, *_: Any, **__: Any) -> None:
            raise RuntimeError("not today")

    one = Try(Refuses())
    if store == "none":
        context = one.context

        def without() -> dict[str, Any]:
            return {name: value for name, value in context().items() if name != "task_state_store"}

        one.context = without  # type: ignore[method-assign]
    one.resume(500)
    with pytest.raises(TaskDeferred):
        one.poke()
    assert capsys.readouterr().out.count("not today") == (2 if store == "refuses" else 0)


def test_where_there_was_no_pool_nobody_asks(registered: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    monkeypatch.setattr(patch, "_is_configured", lambda: False)
    monkeypatch.setattr(native_continuation, "read_start", lambda *_: pytest.fail("asked"))
    one = Try()
    one.rescheduled.append(dt.datetime.now(dt.UTC))
    assert one.poke() is not None


def test_backoff_goes_on_in_reschedule_mode(registered: list[Any]) -> None:
    one = Try(poke_interval=10, timeout=100_000, exponential_backoff=True)
    for due in (one.resume(1000), one.poke()):
        assert (due - dt.datetime.now(dt.UTC)).total_seconds() > 300
    one = Try(poke_interval=10, timeout=100_000, exponential_backoff=True, max_wait=60)
    for due in (one.resume(1000), one.poke()):
        assert (due - dt.datetime.now(dt.UTC)).total_seconds() == pytest.approx(60, abs=5)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What a sensor in poke mode sleeps; time passes with it."""
    naps: list[float] = []
    real = time.monotonic

    def sleep(seconds: float) -> None:
        naps.append(seconds)

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: real() + sum(naps))
    monkeypatch.setattr(airflows, "time", clock)
    return naps


def in_poke_mode(waited: float, cls: Any = Flag, **options: Any) -> Any:
    return Try(**{"mode": "poke", **options}).resume(waited, cls)


def test_a_timeout_counts_once_in_poke_mode(registered: list[Any], slept: list[float]) -> None:
    with pytest.raises(AirflowSensorTimeout):
        in_poke_mode(500, timeout=dt.timedelta(seconds=600))
    assert sum(slept) == 120


def test_a_poke_that_sets_its_timeout_means_all_of_its_time(
    registered: list[Any], slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def poke(sensor: Any, _: Any) -> bool:
        seen.append(sensor.timeout)
        sensor.timeout = 700
        return False

    monkeypatch.setattr(Flag, "poke", poke)
    with pytest.raises(AirflowSensorTimeout):
        in_poke_mode(500)
    assert sum(slept) == 210
    assert seen[0] == 600
    assert set(seen[1:]) == {700}


def test_what_a_dag_file_has_put_on_a_sensor_stays(registered: list[Any], slept: list[float]) -> None:
    sensor = in_dag(Flag, flag="x", timeout=100)
    count = itertools.count()
    sensor.poke = lambda _: next(count) > 1
    own = sensor.poke
    kwargs = {"event": BACK, "started": time.time() - 10}
    as_runner(sensor, "resume_execution", patch.RESUME, kwargs, Try().context())
    assert vars(sensor)["poke"] is own
    assert operators.NEXT_INTERVAL not in vars(sensor)
    assert sensor.timeout == 100


def test_backoff_goes_on_in_poke_mode(registered: list[Any], slept: list[float]) -> None:
    with pytest.raises(AirflowSensorTimeout):
        in_poke_mode(1000, poke_interval=10, timeout=3000, exponential_backoff=True)
    assert slept[0] > 300
    slept.clear()
    with pytest.raises(AirflowSensorTimeout):
        in_poke_mode(1000, poke_interval=10, timeout=2000, exponential_backoff=True, max_wait=60)
    assert slept[0] == 60


def test_steps_are_those_of_airflow(registered: list[Any], slept: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as a sensor has made that was never in the pool."""
    sensor = in_dag(Flag, flag="x", poke_interval=10, timeout=5000, exponential_backoff=True)
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    with pytest.raises(AirflowSensorTimeout):
        as_runner(sensor, "execute", {"ti": Ti("dag", "wait")})
    for made, waited in enumerate(itertools.accumulate(slept[:-1])):
        assert abs(native_continuation._steps_made(sensor, waited) - made - 1) <= 1
    assert native_continuation._steps_made(sensor, 0.5) == 0


def test_execution_timeout_counts_once(registered: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_continuation, "_LAST_POKE", 0.1)
    called: list[int] = []
    monkeypatch.setattr(Flag, "on_kill", lambda _: called.append(1))
    sensor = in_dag(Flag, flag="x", poke_interval=30, execution_timeout=dt.timedelta(seconds=50))
    kwargs = {"event": BACK, "started": time.time() - 49.9}
    with pytest.raises(AirflowTaskTimeout):
        under_runner(sensor, lambda context: sensor.resume_execution(patch.RESUME, kwargs, context))
    assert called == [1]


def test_in_reschedule_mode_an_execution_timeout_is_of_a_process(registered: list[Any]) -> None:
    assert Try(execution_timeout=dt.timedelta(seconds=50)).resume(waited=500) is not None


def test_airflow_asks_its_task_instance_for_the_first_reschedule(registered: list[Any]) -> None:
    """The date is told by an attribute of the instance."""
    ti = RuntimeTaskInstance.model_construct(id=Ti("dag", "wait").id, task_id="wait", dag_id="dag")
    began = dt.datetime(2026, 11, 2, tzinfo=dt.UTC)
    before = dict(vars(ti))
    with native_continuation._counting_from(ti, began):
        assert ti.get_first_reschedule_date({}) == began
    assert vars(ti) == before
