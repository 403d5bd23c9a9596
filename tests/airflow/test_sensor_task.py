"""A sensor's task on its worker: the first poke, the proof, and how it ends when it resumes."""

import datetime as dt
import functools
import itertools
import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

pytest.importorskip("airflow")

from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk import DAG, Asset
from airflow.sdk.bases.sensor import BaseSensorOperator, PokeReturnValue
from airflow.sdk.execution_time.context import set_current_context

from sensorpool import Pool, Settings
from sensorpool.airflow.compat import features, operators, task_runtime
from sensorpool.airflow.compat.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    TaskDeferred,
)
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof.arguments import external_inputs, rebuild
from sensorpool.airflow.result import InstanceResult
from sensorpool.airflow.task import deferral, poke_errors, poolable
from sensorpool.airflow.task import patch as intercept
from sensorpool.airflow.task.first_poke import FirstPoke
from sensorpool.airflow.task.poke_errors import PokeFailed
from sensorpool.errors import Unreachable
from sensorpool.model.states import Ending, State
from sensorpool.poke.answer import reason_of
from tests.airflow.needs import needs
from tests.airflow.running import Flag, as_runner, context_of, in_dag, pool_of_process, under_runner
from tests.support.parsing import mismatch

FLAG = "tests.airflow.running.Flag"


@pytest.fixture
def pool(postgres_database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    enabled, settings = f"{FLAG},{__name__}.Third", AirflowSettings(enabled=True)
    with pool_of_process(monkeypatch, postgres_database, redis_url, enabled, lambda: settings) as made:
        yield made


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
    assert (row["op_classpath"], row["state"]) == (FLAG, "sensing")
    assert json.loads(row["poke_context"]).keys() == {"doc", "flag"}
    assert row["external_id"] == str(context["ti"].id)
    assert (row["dag_id"], row["task_id"], row["run_id"], row["try_number"]) == ("dag", "wait", "run1", 1)
    path, arguments = deferred.value.trigger.serialize()
    assert path == "sensorpool.airflow.trigger.PoolTrigger"
    assert arguments["instance_id"] == row["id"]
    assert arguments["direct"] is True
    assert deferred.value.timeout > dt.timedelta(seconds=600 + 3000)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NotPoolable("it is stateful"), "sensorpool: runs natively: it is stateful"),
        (Unreachable("the database does not answer"), "sensorpool: runs natively: the database does not answer"),
        (
            AttributeError("'int' has no 'upper'"),
            "sensorpool: runs natively: sensorpool cannot take it: AttributeError: 'int' has no 'upper'",
        ),
    ],
    ids=["not poolable", "unreachable", "odd argument"],
)
def test_the_reason_is_told_once_a_try(error: Exception, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    counted: list[str] = []
    log = SimpleNamespace(**dict.fromkeys(("info", "warning"), lambda text, *parts: lines.append(text % parts)))
    monkeypatch.setattr(task_runtime, "count_metric", lambda name, _: counted.append(name))
    for rescheduled in (0, 1, 2):
        with set_current_context({"task_reschedule_count": rescheduled}):
            deferral.report_native(SimpleNamespace(log=log), error)
    is_settled = isinstance(error, NotPoolable)
    assert lines == [said] * (1 if is_settled else 3)
    assert counted == ["native"] * len(lines)


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
    assert json.loads(rows(pool)[0]["poke_context"])["flag"] == "b"


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
        monkeypatch.setattr(pool, "register_many", _unreachable)
    if fault == "class":
        other = Settings.load(database_url=pool.settings.database_url, sensors_enabled="a.B")
        monkeypatch.setattr(pool, "settings", other)
    if fault == "argument":
        sensor._BaseOperator__init_kwargs["flag"] = object()
        monkeypatch.setattr(Flag, "template_fields", ())
    if fault == "settings":
        monkeypatch.setattr(deferral, "airflow_settings", _unreachable)
    if fault == "excluded":
        monkeypatch.setattr(deferral, "airflow_settings", lambda: AirflowSettings(enabled=True, exclude=("dag.wait",)))
    assert as_runner(sensor, "execute", context_of(sensor)) is None
    assert len(pokes) >= 2
    assert rows(pool) == []


@pytest.fixture
def first_poke_in_pool(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """``first_poke = pool``; the pokes on this worker, which land."""
    settings, pokes = AirflowSettings(enabled=True, first_poke="pool"), list[int]()
    monkeypatch.setattr(deferral, "airflow_settings", lambda: settings)
    monkeypatch.setattr(Flag, "poke", lambda *_: pokes.append(1) or True)
    return pokes


@pytest.mark.parametrize("mode", ["poke", "reschedule"])
def test_the_first_poke_may_be_the_pools(pool: Pool, first_poke_in_pool: list[int], mode: str) -> None:
    """It says nothing of what a first poke on the worker would have looked up."""
    sensor = in_dag(Flag, flag="x", poke_interval=30, mode=mode)
    with pytest.raises(TaskDeferred):
        as_runner(sensor, "execute", context_of(sensor))
    assert first_poke_in_pool == []
    (row,) = rows(pool)
    assert row["state"] == "sensing"
    assert external_inputs.missing_lookups_of(json.loads(row["poke_context"])) is None


def test_without_a_pool_the_first_poke_is_the_workers_all_the_same(
    pool: Pool, first_poke_in_pool: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "register_many", _unreachable)
    sensor = in_dag(Flag, flag="x")
    assert as_runner(sensor, "execute", context_of(sensor)) is None
    assert first_poke_in_pool == [1]


def test_a_task_of_no_team_is_pooled(pool: Pool) -> None:
    sensor = in_dag(Flag, flag="x")
    with pytest.raises(TaskDeferred):
        as_runner(sensor, "execute", context_of(sensor, dag_run=SimpleNamespace(team_name=None)))


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


class Third(Flag):
    """Lands at the third poke of its process: natively that is its own."""

    tries: ClassVar[list[str]] = []

    def poke(self, context: Any) -> bool:
        """Count."""
        self.tries.append(self.flag)
        return len(self.tries) > 2


def test_a_sensor_whose_pokes_share_state_ends_by_its_own(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Third, "tries", [])
    sensor = in_dag(Third, flag="x", poke_interval=0.01)
    assert as_runner(sensor, "execute", context_of(sensor)) is None
    assert Third.tries == ["x"] * 3
    assert rows(pool) == []


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
    return InstanceResult(state, ending, "because", None).as_payload()


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


@pytest.mark.parametrize("flag", ["soft_fail", "never_fail"])
@pytest.mark.parametrize(
    ("state", "ending"),
    [
        (State.SKIPPED, Ending.TIMEOUT),
        (State.FAILED, Ending.POKE_ERROR),
        (State.SUCCESS, Ending.LANDED),
        (State.CANCELLED, Ending.HANDED_BACK),
    ],
)
def test_callbacks_see_its_flags_as_they_were(pool: Pool, flag: str, state: State, ending: Ending) -> None:
    """Airflow calls them when it has resumed the task, which must not apply them a second time."""
    sensor = in_dag(Flag, flag="x", timeout=0, **{flag: True})
    before = vars(sensor) | {"_cached_logger": sensor.log}
    event = {"event": InstanceResult(state, ending, "KeyError: 'x'").as_payload(), "started": 1.0}
    with suppress(KeyError, AirflowSkipException, AirflowSensorTimeout):
        as_runner(sensor, "resume_execution", intercept.RESUME, event, context_of(sensor))
    assert vars(sensor) | {"_cached_logger": sensor.log} == before


def test_what_a_native_poke_has_set_stays(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, x=lambda sensor, _: vars(sensor).update(soft_fail=True))
    sensor = in_dag(Flag, flag="x", timeout=0)
    event = {"event": ended(State.CANCELLED, Ending.HANDED_BACK), "started": 1.0}
    with pytest.raises(AirflowSkipException):
        as_runner(sensor, "resume_execution", intercept.RESUME, event, context_of(sensor))
    assert sensor.soft_fail is True


def test_poke_failed_is_no_airflow_exception() -> None:
    assert not issubclass(PokeFailed, AirflowException)


# what a poke raised


class Throttled(Exception):
    """Has a constructor of its own, and what it keeps beside its text cannot be known again."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code, self.text = code, text

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"

    class Nested(ValueError):
        """Is found as well."""


@pytest.mark.parametrize(
    ("error", "exactly"),
    [
        (ValueError("a: b"), True),
        (ValueError(), True),
        (KeyError("name"), True),
        (KeyError(("a", 1)), True),
        (ConnectionRefusedError("not today"), True),
        (ConnectionRefusedError(111, "refused"), True),
        (AirflowException("no such bucket"), True),
        (Throttled.Nested("slowly"), True),
        (Throttled(429, "slowly"), False),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), False),
        (json.JSONDecodeError("bad", "x", 0), True),
        (ExceptionGroup("of two\n(2 sub-exceptions)", [ValueError("a"), OSError("b")]), True),
        (ExceptionGroup("of one", [ValueError("a")]), True),
    ],
    ids=repr,
)
@pytest.mark.parametrize("soft_fail", [False, True])
def test_the_class_that_a_poke_raised_is_raised(pool: Pool, error: Exception, exactly: bool, soft_fail: bool) -> None:
    event = InstanceResult(State.FAILED, Ending.POKE_ERROR, reason_of(error)).as_payload()
    sensor = in_dag(Flag, flag="x", soft_fail=soft_fail)
    with pytest.raises(type(error)) as here:
        as_runner(sensor, "resume_execution", intercept.RESUME, {"event": event}, context_of(sensor))
    assert str(here.value) == str(error)
    assert type(here.value).__qualname__ == type(error).__qualname__
    assert (type(here.value) is type(error)) is exactly
    assert here.value.__notes__ == [
        "Raised by a poke in the pool: of the exception only its class and text are known here."
    ]


@needs(features.RETRY_POLICIES)
def test_a_retry_policy_sees_it(pool: Pool) -> None:
    from airflow.sdk.definitions.retry_policy import ExceptionRetryPolicy, RetryAction, RetryRule

    rules = [
        RetryRule(exception=f"{__name__}.Throttled", action=RetryAction.FAIL),
        RetryRule(exception=OSError, action=RetryAction.RETRY, match_subclasses=False),
    ]
    policy = ExceptionRetryPolicy(rules=rules, default=RetryAction.DEFAULT)
    errors = (Throttled(429, "slowly"), OSError("gone"), ConnectionError("gone"))
    seen = [policy.evaluate(poke_errors.error_of(reason_of(error)), 1, 2).action for error in errors]
    assert seen == [policy.evaluate(error, 1, 2).action for error in errors]
    assert len(set(seen)) == 3


@pytest.mark.parametrize(
    "reason",
    [
        "absent.module.Throttled: slowly",
        "Throttled: slowly",
        "os.system: slowly",
        "sys.exit: slowly",
        "builtins.type: slowly",
        "builtins.object: slowly",
        "BaseExceptionGroup: slowly",
        "ExceptionGroup: slowly",
        "ExceptionGroup: slowly (0 sub-exceptions)",
        "ExceptionGroup: slowly (99999999 sub-exceptions)",
        "airflow.sdk.exceptions.DownstreamTasksSkipped: slowly",
        "AirflowSkipException: slowly",
        "TaskDeferred: slowly",
        "SystemExit: slowly",
        "it went slowly",
        "a: slowly",
        ": slowly",
        "...: slowly",
        "slowly",
    ],
)
def test_what_cannot_be_found_is_raised_under_its_name(reason: str) -> None:
    before = set(sys.modules)
    error = poke_errors.error_of(reason)
    assert isinstance(error, PokeFailed)
    assert "slowly" in str(error)
    name = reason.partition(":")[0].rpartition(".")[2]
    assert type(error).__name__ == (
        name if name[:1].isupper() or name in {"system", "exit", "type", "object"} else "PokeFailed"
    )
    assert set(sys.modules) == before


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (AirflowTaskTimeout("slowly"), Ending.FAIL),
        (AirflowSensorTimeout("slowly"), Ending.FAIL),
        (AirflowFailException("slowly"), Ending.FAIL),
        (AirflowSkipException("slowly"), Ending.SKIP),
    ],
)
def test_what_a_poke_asked_for_by_raising(pool: Pool, error: BaseException, ending: Ending) -> None:
    state = State.SKIPPED if ending is Ending.SKIP else State.FAILED
    sensor = in_dag(Flag, flag="x")
    event = InstanceResult(state, ending, reason_of(error)).as_payload()
    with pytest.raises(type(error)) as here:
        as_runner(sensor, "resume_execution", intercept.RESUME, {"event": event}, context_of(sensor))
    assert (type(here.value), str(here.value)) == (type(error), "slowly")


def test_nothing_but_a_failure_is_raised_for_a_failure() -> None:
    for reason in ("ValueError: no", "AirflowSkipException: no", "quarantined: it crashed"):
        assert type(poke_errors.failure_of(reason)) is AirflowFailException
        assert type(poke_errors.skip_of(reason)) is AirflowSkipException


# what only a worker can do


class Kills(Flag):
    """Ends something when it is killed."""

    def on_kill(self) -> None:
        """Natively called where the task is marked or cleared."""


class Around(Flag):
    """Does something before and after its base's."""

    def execute(self, context: Any) -> Any:
        """Do it."""
        self.log.info("before")
        return super().execute(context)


class Finally(Flag):
    """Tidies up."""

    def execute(self, context: Any) -> Any:
        """Do it."""
        try:
            return super().execute(context)
        finally:
            self.log.info("tidied up")


class Decorated(Flag):
    """Has something around it that cannot be seen."""

    @staticmethod
    def twice(method: Any) -> Any:
        """Call it, once."""
        return lambda *arguments: method(*arguments)

    @twice
    def execute(self, context: Any) -> Any:
        """Do it."""
        return super().execute(context)


class Afterwards(Flag):
    """Goes on with what its base's returns."""

    def execute(self, context: Any) -> Any:
        """Do it."""
        found = super().execute(context=context)
        return f"found {found}"


class Leaves(Flag):
    """Returns what its last poke left."""

    def execute(self, context: Any) -> Any:
        """Do it."""
        super().execute(context)
        return self.files


class LeavesElsewhere(Flag):
    """Has another work with it."""

    def execute(this, context: Any) -> Any:
        """Do it."""
        super().execute(context)
        return [vars(one) for one in [this]]


class AsksItsBase(Flag):
    """Has its base work with it."""

    def execute(self, context: Any) -> Any:
        """Do it."""
        super().execute(context)
        return super().poke(context)


class Tells(Flag):
    """Logs its argument."""

    def execute(self, context: Any) -> Any:
        """Do it."""
        super().execute(context)
        self.log.info("%s is there", self.flag)


class Changes(Flag):
    """Changes its argument."""

    def execute(self, context: Any) -> Any:
        """Do it."""
        super().execute(context)
        self.flag = "y"


def holding_a_lock(cls: Any) -> Any:
    execute = cls.execute

    @functools.wraps(execute)
    def locked(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return execute(self, *arguments, **named)
        finally:
            self.log.info("unlocked")

    cls.execute = locked
    return cls


@holding_a_lock
class Locked(Flag):
    """Its execute looks harmless, and has a lock around it."""

    def execute(self, context: Any) -> Any:
        """Do it."""
        return super().execute(context)


@holding_a_lock
class LockedBare(Flag):
    """Has a lock around that of every sensor."""


class LockedWithin(Flag):
    """Has it put around by hand."""

    def execute(self, context: Any) -> Any:
        """Do it."""
        return super().execute(context)

    execute = functools.wraps(execute)(lambda self, context: None)


class OwnInterval(Flag):
    """Says when it is poked."""

    def _get_next_poke_interval(self, *_: Any) -> float:
        return 0.5


class AfterAround(Around):
    """Is around what is around."""

    def execute(self, context: Any) -> Any:
        return super().execute(context)


@pytest.mark.parametrize(
    ("cls", "options", "why"),
    [
        (Kills, {}, "its on_kill has to run on its worker"),
        (Kills, {"mode": "reschedule"}, None),
        (Around, {}, "the execute of Around does more"),
        (AfterAround, {}, "the execute of Around does more"),
        (Finally, {}, "the execute of Finally does more"),
        (Decorated, {}, "the execute of Decorated does more"),
        (Afterwards, {}, None),
        (Leaves, {}, "the execute of Leaves goes on with what its last poke may have left"),
        (LeavesElsewhere, {}, "may have left"),
        (AsksItsBase, {}, "may have left"),
        (Changes, {}, "may have left"),
        (Tells, {}, None),
        (Locked, {}, "the execute of Locked does more"),
        (LockedBare, {}, "the execute of LockedBare does more"),
        (LockedWithin, {}, "the execute of LockedWithin does more"),
        (OwnInterval, {}, "computes itself when its next poke is due"),
        (Flag, {"run_as_user": "nobody"}, "runs as the user nobody"),
        (Flag, {}, None),
    ],
)
def test_what_leaving_its_slot_would_do_twice_or_never(cls: Any, options: dict[str, Any], why: str | None) -> None:
    settings = Settings.load(sensors_enabled=f"{__name__}.{cls.__qualname__},{FLAG}")
    sensor = in_dag(cls, flag="x", **options)
    if why is None:
        assert poolable.condition_of(sensor, {}, settings, AirflowSettings(enabled=True))
    else:
        with pytest.raises(NotPoolable, match=why):
            poolable.condition_of(sensor, {}, settings, AirflowSettings(enabled=True))


class Unparsed(Tells):
    """Waits, and then tells of it, as its base does."""

    def execute(self, context: Any) -> Any:
        """Do it."""
        return super().execute(context)


def test_an_execute_that_cannot_be_parsed_stays_on_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.load(sensors_enabled=f"{__name__}.Unparsed")
    sensor = in_dag(Unparsed, flag="x")
    with monkeypatch.context() as patch:
        patch.setattr("ast.parse", mismatch)
        with pytest.raises(NotPoolable, match="the execute of Unparsed does more"):
            poolable.condition_of(sensor, {}, settings, AirflowSettings(enabled=True))


def test_what_a_dag_file_puts_on_a_sensor_is_its_own() -> None:
    settings = Settings.load(sensors_enabled=FLAG)
    sensor = in_dag(Flag, flag="x")
    assert poolable.ends_directly(sensor, {})
    sensor.post_execute = lambda context, result=None: None
    assert not poolable.ends_directly(sensor, {})
    for name, why in (("on_kill", "its on_kill"), (operators.NEXT_INTERVAL, "its next poke")):
        sensor = in_dag(Flag, flag="x")
        setattr(sensor, name, lambda *_: None)
        with pytest.raises(NotPoolable, match=why):
            poolable.condition_of(sensor, {}, settings, AirflowSettings(enabled=True))


def test_an_execute_that_was_replaced() -> None:
    settings = Settings.load(sensors_enabled=FLAG)
    sensor = in_dag(Flag, flag="x")
    vars(sensor)["execute"] = lambda _: None
    with pytest.raises(NotPoolable, match="replaced"):
        poolable.condition_of(sensor, {}, settings, AirflowSettings(enabled=True))


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
    assert InstanceResult.read("success").state is State.SUCCESS
    assert InstanceResult.read("TaskInstanceState.SUCCESS").state is State.SUCCESS
    for garbled in (None, "failed", {}, {"state": "success"}, {"state": "x", "ending": "y"}, 3):
        assert InstanceResult.read(garbled).ending is Ending.HANDED_BACK


def test_execution_timeout_calls_on_kill_once(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    monkeypatch.setattr(Flag, "on_kill", lambda _: called.append(1))
    sensor = in_dag(Flag, flag="x", execution_timeout=dt.timedelta(seconds=100))
    kwargs = {"event": ended(State.FAILED, Ending.EXECUTION_TIMEOUT), "started": 1.0}
    with pytest.raises(AirflowTaskTimeout):
        under_runner(sensor, lambda context: sensor.resume_execution(intercept.RESUME, kwargs, context))
    assert called == [1]


def test_airflow_asks_for_the_next_interval_where_the_first_poke_stops_it(pool: Pool) -> None:
    sensor = in_dag(Flag, flag="later")
    first = FirstPoke(sensor, lambda s, c: as_runner(s, "execute", c), 10.0, list)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intercept, "is_enabled", lambda: False)
        assert first.poke(context_of(sensor)) is None
    assert not first.ended
