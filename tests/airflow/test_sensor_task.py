"""A sensor's task on its worker: the first poke, the proof, and how it ends when it resumes."""

import datetime as dt
import itertools
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow")

from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk import DAG, Asset
from airflow.sdk.bases.sensor import BaseSensorOperator, PokeReturnValue
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    TaskDeferred,
)

from sensorpool import Pool, Settings
from sensorpool.airflow import finish, intercept, poolable, rebuild, slot
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.finish import PokeFailed
from sensorpool.airflow.first_poke import FirstPoke
from sensorpool.airflow.refusal import NotPoolable
from sensorpool.airflow.saw import Saw
from sensorpool.errors import Unreachable
from sensorpool.states import Ending, State
from tests.airflow.running import Flag, as_runner, context_of, in_dag

FLAG = "tests.airflow.running.Flag"


@pytest.fixture
def pool(postgres_database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The pool of this process, as a worker has it; the classes are patched."""
    made = Pool(Settings.load(database_url=postgres_database, redis_url=redis_url, sensors_enabled=FLAG))
    monkeypatch.setattr(slot, "pool", lambda: made)
    monkeypatch.setattr(slot, "airflow_settings", lambda: AirflowSettings(enabled=True))
    monkeypatch.setattr(intercept, "is_enabled", lambda: True)
    intercept.install()
    yield made
    made.close()


def rows(pool: Pool) -> list[Any]:
    with pool.database.engine.connect() as connection:
        return list(connection.exec_driver_sql("SELECT * FROM sensor_instance ORDER BY id").mappings())


def answers(monkeypatch: pytest.MonkeyPatch, **found: Any) -> None:
    monkeypatch.setattr(Flag, "answers", found)


# leaving the slot


def test_what_does_not_hold_is_registered_and_its_slot_is_free(pool: Pool) -> None:
    sensor = in_dag(Flag, flag="later", poke_interval=30, timeout=600, soft_fail=True)
    context = context_of(sensor)
    with pytest.raises(TaskDeferred) as deferred:
        as_runner(sensor, "execute", context)
    row = rows(pool)[0]
    assert (row["op_classpath"], row["poke_context"], row["state"]) == (FLAG, '{"flag":"later"}', "sensing")
    assert row["external_id"] == str(context["ti"].id)
    assert (row["dag_id"], row["task_id"], row["run_id"], row["try_number"]) == ("dag", "wait", "run1", 1)
    path, arguments = deferred.value.trigger.serialize()
    assert path == "sensorpool.airflow.trigger.PoolTrigger"
    assert arguments["instance_id"] == row["id"]
    assert arguments["direct"] is True
    assert deferred.value.timeout > dt.timedelta(seconds=600 + 3000)


def test_what_holds_already_ends_natively(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, now=PokeReturnValue(is_done=True, xcom_value=[1]))
    sensor = in_dag(Flag, flag="now")
    assert as_runner(sensor, "execute", context_of(sensor)) == [1]
    assert rows(pool) == []


@pytest.mark.parametrize(
    ("answer", "options", "raised"),
    [
        (RuntimeError("no"), {}, RuntimeError),
        (RuntimeError("no"), {"never_fail": True}, AirflowSkipException),
        (AirflowSkipException("no"), {}, AirflowSkipException),
        (AirflowFailException("no"), {}, AirflowFailException),
        (AirflowFailException("no"), {"soft_fail": True}, AirflowSkipException),
        (RuntimeError("no"), {"silent_fail": True}, TaskDeferred),
        (False, {"timeout": 0}, AirflowSensorTimeout),
        (False, {"timeout": 0, "soft_fail": True}, AirflowSkipException),
    ],
)
def test_the_first_poke_ends_as_airflow_says(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, answer: Any, options: dict[str, Any], raised: type[BaseException]
) -> None:
    answers(monkeypatch, x=answer)
    sensor = in_dag(Flag, flag="x", **options)
    with pytest.raises(raised):
        as_runner(sensor, "execute", context_of(sensor))
    assert len(rows(pool)) == (raised is TaskDeferred)


def test_a_mapped_sensor_and_a_subclass_that_calls_super(pool: Pool) -> None:
    with DAG("dag", schedule=None):
        mapped = Flag.partial(task_id="mapped").expand(flag=["a", "b"])
    sensor = mapped.unmap({"flag": "b"})
    with pytest.raises(TaskDeferred):
        as_runner(sensor, "execute", context_of(sensor))
    assert rows(pool)[0]["poke_context"] == '{"flag":"b"}'


@pytest.mark.parametrize("fault", ["database", "class", "argument", "context", "stateful", "excluded", "settings"])
def test_whatever_goes_wrong_the_sensor_runs_natively(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    pokes: list[int] = []

    def poke(sensor: Any, context: Any) -> bool:
        pokes.append(1)
        if fault == "context":
            _ = context["ti"]
        if fault == "stateful":
            sensor.flag += "."
        return len(pokes) > 1

    monkeypatch.setattr(Flag, "poke", lambda self, context: poke(self, context))
    sensor = in_dag(Flag, flag="x", poke_interval=0.01)
    if fault == "database":
        monkeypatch.setattr(pool, "register_plans", _unreachable)
    if fault == "class":
        other = Settings.load(database_url=pool.settings.database_url, sensors_enabled="a.B")
        monkeypatch.setattr(pool, "settings", other)
    if fault == "argument":
        sensor._BaseOperator__init_kwargs["flag"] = object()
        monkeypatch.setattr(Flag, "template_fields", ())
    if fault == "settings":
        monkeypatch.setattr(slot, "airflow_settings", _unreachable)
    if fault == "excluded":
        monkeypatch.setattr(slot, "airflow_settings", lambda: AirflowSettings(enabled=True, exclude=("dag.wait",)))
    assert as_runner(sensor, "execute", context_of(sensor)) is None
    assert len(pokes) >= 2
    assert rows(pool) == []


def _unreachable(*_: Any) -> Any:
    raise Unreachable("the database does not answer")


def test_a_try_that_was_in_the_pool_already_runs_natively(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    sensor = in_dag(Flag, flag="x", poke_interval=0.01)
    context = context_of(sensor)
    with pytest.raises(TaskDeferred):
        as_runner(sensor, "execute", context)
    pool.cancel(rows(pool)[0]["id"])
    count = itertools.count()
    monkeypatch.setattr(Flag, "poke", lambda *_: next(count) > 1)
    assert as_runner(sensor, "execute", context) is None


# the proof


def test_the_rendered_arguments_are_the_condition(tmp_path: Path) -> None:
    sensor = in_dag(FileSensor, filepath="{{ ds }}", fs_conn_id="fs_default", poke_interval=7)
    sensor.filepath = "2026-11-02"  # as rendered
    assert rebuild.poke_context_of(sensor) == {"filepath": "2026-11-02"}  # a default spelled out is no other condition


def test_poke_context_fields_are_honoured() -> None:
    assert rebuild.poke_context_of(in_dag(OfPartner, partner="p", log_level="x")) == {"partner": "p"}


def test_a_sensor_that_is_another_one_when_built_again_is_refused() -> None:
    with pytest.raises(NotPoolable, match="its attribute seen is another one"):
        rebuild.poke_context_of(in_dag(Counting, flag="x"))


class OfPartner(BaseSensorOperator):
    """Says itself what its condition is."""

    poke_context_fields = ("partner",)

    def __init__(self, *, partner: str, log_level: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.partner = partner
        self._log_level = log_level


class Counting(Flag):
    """Is another one each time."""

    made = itertools.count()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seen = next(self.made)


def test_patterns() -> None:
    def admits(dag_id: str, task_id: str, **patterns: Any) -> bool:
        return AirflowSettings.load(**patterns).admits(dag_id, task_id)

    assert admits("etl", "wait")
    assert not admits("etl", "wait", include="dwh_*")
    assert admits("dwh_1", "wait", include="etl, dwh_*")
    assert not admits("etl", "wait_for_payment", exclude="*.wait_for_*")
    assert admits("etl.v2", "wait", include="etl.v2.wait")
    assert not admits("etl", "wait", include="etl", exclude="etl")


# ending without a worker


@pytest.mark.parametrize(
    "given",
    [
        {"on_success_callback": print},
        {"outlets": [Asset("a")]},
        {"post_execute": lambda context, result: None},
    ],
)
def test_a_success_ends_directly_only_where_nothing_is_skipped(given: dict[str, Any]) -> None:
    assert poolable.ends_directly(in_dag(Flag, flag="x"), {})
    assert not poolable.ends_directly(in_dag(Flag, flag="x", **given), {})
    assert not poolable.ends_directly(in_dag(Flag, flag="x"), {"map_index_template": "{{ x }}"})


# resuming


def ended(state: State, ending: Ending) -> dict[str, Any]:
    return Saw(state, ending, "because", None).as_payload()


@pytest.mark.parametrize(("soft_fail", "never_fail"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(
    ("state", "ending", "raised"),
    [
        (State.FAILED, Ending.TIMEOUT, AirflowSensorTimeout),
        (State.FAILED, Ending.EXECUTION_TIMEOUT, AirflowTaskTimeout),
        (State.FAILED, Ending.POKE_ERROR, PokeFailed),
        (State.FAILED, Ending.FAIL, AirflowFailException),
        (State.CANCELLED, Ending.CANCELLED, AirflowFailException),
        (State.SKIPPED, Ending.TIMEOUT, AirflowSkipException),
        (State.SKIPPED, Ending.SKIP, AirflowSkipException),
    ],
)
def test_what_the_pool_saw_is_raised(
    pool: Pool, state: State, ending: Ending, raised: type[BaseException], soft_fail: bool, never_fail: bool
) -> None:
    """Through Airflow's own resume_execution, which makes skips of AirflowExceptions under soft_fail and never_fail."""
    sensor = in_dag(Flag, flag="x", soft_fail=soft_fail, never_fail=never_fail)
    with pytest.raises(raised, match=r"because|timed out") as error:
        as_runner(
            sensor,
            "resume_execution",
            intercept.RESUME,
            {"event": ended(state, ending), "started": 1.0},
            context_of(sensor),
        )
    assert type(error.value) is raised
    assert intercept.RESUMED not in vars(sensor)


def test_poke_failed_is_no_airflow_exception() -> None:
    assert not issubclass(PokeFailed, AirflowException)


def test_a_success_gives_its_value(pool: Pool) -> None:
    sensor = in_dag(Flag, flag="x")
    event = Saw(State.SUCCESS, Ending.LANDED, None, {"__type__": "date", "value": "2026-11-02"}).as_payload()
    value = as_runner(sensor, "resume_execution", intercept.RESUME, {"event": event}, context_of(sensor))
    assert value == dt.date(2026, 11, 2)


def test_what_is_handed_back_runs_natively(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, x=True)
    sensor = in_dag(Flag, flag="x")
    event = ended(State.CANCELLED, Ending.HANDED_BACK)
    assert as_runner(sensor, "resume_execution", intercept.RESUME, {"event": event}, context_of(sensor)) is None
    assert rows(pool) == []


@pytest.mark.parametrize("options", [{}, {"soft_fail": True}, {"never_fail": True}], ids=str)
@pytest.mark.parametrize(
    ("mode", "answer"),
    [("reschedule", False), ("reschedule", AirflowException("no")), ("poke", AirflowException("no"))],
    ids=["reschedules", "raises, reschedule", "raises"],
)
def test_what_is_handed_back_ends_as_it_does_natively(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, mode: str, answer: Any, options: dict[str, Any]
) -> None:
    """Also through resume_execution, which makes a skip of every AirflowException; one asks to be rescheduled."""
    answers(monkeypatch, x=answer)
    native, handed_back = (
        in_dag(Flag, flag="x", mode=mode, poke_interval=30, timeout=600, **options) for _ in range(2)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intercept, "is_enabled", lambda: False)
        with pytest.raises(AirflowException) as natively:
            as_runner(native, "execute", context_of(native))
    event = {"event": ended(State.CANCELLED, Ending.HANDED_BACK), "started": time.time() - 100}
    with pytest.raises(natively.type) as here:
        as_runner(handed_back, "resume_execution", intercept.RESUME, event, context_of(handed_back))
    assert here.type is natively.type


def test_time_is_taken_off_once_where_airflow_counts_from_the_first_reschedule(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensor = in_dag(Flag, flag="x", mode="reschedule", poke_interval=30, timeout=600)
    context = context_of(sensor)
    first = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=400)
    monkeypatch.setattr(context["ti"], "get_first_reschedule_date", lambda _: first)
    event = {"event": ended(State.CANCELLED, Ending.HANDED_BACK), "started": first.timestamp()}
    with pytest.raises(AirflowRescheduleException):
        as_runner(sensor, "resume_execution", intercept.RESUME, event, context)


def test_the_payload_of_an_end_event_is_understood() -> None:
    assert Saw.read("success").state is State.SUCCESS
    assert Saw.read("TaskInstanceState.SUCCESS").state is State.SUCCESS
    for garbled in (None, "failed", {}, {"state": "success"}, {"state": "x", "ending": "y"}, 3):
        assert Saw.read(garbled).ending is Ending.HANDED_BACK


def test_execution_timeout_calls_on_kill(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    monkeypatch.setattr(Flag, "on_kill", lambda _: called.append(1))
    saw = Saw(State.FAILED, Ending.EXECUTION_TIMEOUT, "because")
    with pytest.raises(AirflowTaskTimeout):
        finish.conclude(in_dag(Flag, flag="x"), {}, saw, 0.0, lambda *_: None)
    assert called


def test_airflow_asks_for_the_next_interval_where_the_first_poke_stops_it(pool: Pool) -> None:
    sensor = in_dag(Flag, flag="later")
    first = FirstPoke(sensor, lambda s, c: as_runner(s, "execute", c))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intercept, "is_enabled", lambda: False)
        assert first.poke(context_of(sensor)) is None
    assert not first.landed
    first.check(limit=10.0)
    with pytest.raises(NotPoolable, match=r"its poke took .* and poke_timeout is -1 s"):
        first.check(limit=-1.0)
