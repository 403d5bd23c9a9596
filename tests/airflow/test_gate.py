"""A task that waits at a gate: its own poke follows the landing in the pool, and ends it as natively."""

import datetime as dt
import json
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

pytest.importorskip("airflow")

from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    TaskDeferred,
)

from sensorpool import Pool, Settings
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.result import InstanceResult
from sensorpool.airflow.task import conclude, deferral, gate, patch
from sensorpool.airflow.trigger import PoolTrigger
from sensorpool.errors import Unreachable
from sensorpool.model.states import Ending, Outcome, State
from sensorpool.model.values import DueGroup, Fact
from sensorpool.poke.poker import Poker
from tests.airflow.running import PokesLog, as_runner, context_of, in_dag, pool_of_process

LEAVES = f"{__name__}.Leaves"
ENDINGS = {Outcome.LANDED: Ending.LANDED, Outcome.POKE_ERROR: Ending.POKE_ERROR, Outcome.HAND_BACK: Ending.HANDED_BACK}


class Leaves(BaseSensorOperator):
    """Leaves what it has found to the rest of its execute."""

    store: ClassVar[PokesLog] = PokesLog()  # by its name it is no state of the class
    pokes: ClassVar[PokesLog] = PokesLog()
    arrives: ClassVar[PokesLog] = PokesLog()  # the number of the poke at which it finds something

    def __init__(self, *, prefix: str = "day", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.prefix = prefix
        self.matches: list[str] = []

    def poke(self, context: Any) -> bool:
        """List what there is."""
        self.pokes.append(1)
        if "broken" in self.store:
            raise OSError("the store is broken")
        if self.arrives and len(self.pokes) >= self.arrives[0]:
            self.store.append("day1")
        self.matches = [name for name in self.store if name.startswith(self.prefix)]
        return bool(self.matches)

    def execute(self, context: Any) -> list[str]:
        """Return what it has found."""
        self.log.info("begins")
        super().execute(context)
        return self.matches


class Derived(Leaves):
    """Not listed."""


class Task:
    """One try of a task, through its processes."""

    def __init__(self, pool: Pool, cls: Any = Leaves, **arguments: Any) -> None:
        self.pool = pool
        self.cls = cls
        self.arguments = {"poke_interval": 0.01, "timeout": 600, **arguments}
        self.context: dict[str, Any] = context_of(in_dag(cls, **self.arguments))
        self.kwargs: dict[str, Any] = {}
        self.trigger: Any = None

    def start(self) -> Any:
        """Begin; return what its execute returns, or None if it waits in the pool."""
        return self._left(lambda sensor: as_runner(sensor, "execute", self.context))

    def resume(self, result: InstanceResult, **more: Any) -> Any:
        """Resume with a result of the pool; return as `start`."""
        event = result.as_payload(at_gate=self.trigger.at_gate)
        kwargs = json.loads(json.dumps({**self.kwargs, "event": event, **more}))
        return self._left(lambda sensor: as_runner(sensor, "resume_execution", patch.RESUME, kwargs, self.context))

    def _left(self, run: Any) -> Any:
        self.waits = False
        self.sensor = in_dag(self.cls, **self.arguments)
        try:
            return run(self.sensor)
        except TaskDeferred as left:
            self.kwargs, self.trigger, self.left = dict(left.kwargs or {}), left.trigger, left
            self.waits = True
            return None

    def row(self) -> Any:
        """Return its one row in the pool."""
        (row,) = rows(self.pool)
        return row

    def poked_in_pool(self) -> InstanceResult:
        """Poke in the pool, and settle; return the result, which its trigger gets."""
        row = self.row()
        cache = Poker(Settings.load(sensors_enabled=row["op_classpath"])).cache
        kept = cache.keep(DueGroup(1, 1, 7, 1, 60_000, 0, 0, None), row["op_classpath"], row["poke_context"])
        [report] = kept.poke()
        self.pool.settler.settle([Fact(row["group_id"], 10**9, 10**13, report.outcome, reason=report.reason)])
        row = self.row()
        return InstanceResult(State(row["state"]), ENDINGS.get(report.outcome, Ending.TIMEOUT), report.reason)


def rows(pool: Pool) -> list[Any]:
    with pool.database.engine.connect() as connection:
        return list(connection.exec_driver_sql("SELECT * FROM sensor_instance ORDER BY id").mappings())


LANDED = InstanceResult(State.SUCCESS, Ending.LANDED)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why tasks run natively."""
    found: list[str] = []
    report = deferral.report_native
    monkeypatch.setattr(deferral, "report_native", lambda task, error: (found.append(str(error)), report(task, error)))
    return found


@pytest.fixture
def ours() -> AirflowSettings:
    return AirflowSettings(enabled=True, gates_enabled=(LEAVES,))


@pytest.fixture
def pool(
    postgres_database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch, ours: AirflowSettings
) -> Iterator[Pool]:
    enabled = f"{LEAVES},{__name__}.Derived,airflow.providers.*,airflow.providers.sftp.decorators.sensors.sftp."
    enabled += "_DecoratedSFTPSensor"
    enabled += "".join(f",tests.airflow.test_provider_gates.{name}" for name in ("Derived", "Asks"))
    monkeypatch.setattr(Leaves, "store", PokesLog())
    monkeypatch.setattr(Leaves, "pokes", PokesLog())
    monkeypatch.setattr(Leaves, "arrives", PokesLog())
    with pool_of_process(monkeypatch, postgres_database, redis_url, enabled, lambda: ours) as made:
        yield made


@pytest.mark.parametrize("mode", ["poke", "reschedule"])
def test_its_own_poke_ends_it(pool: Pool, mode: str) -> None:
    task = Task(pool, mode=mode)
    task.start()
    assert task.waits
    assert task.trigger.at_gate
    assert not task.trigger.direct
    Leaves.store.extend(["day1", "day2"])
    landed = task.poked_in_pool()
    assert landed.ending is Ending.LANDED
    Leaves.store.append("day3")  # what its own poke finds counts
    assert task.resume(landed) == ["day1", "day2", "day3"]
    assert len(Leaves.pokes) == 3


def test_without_a_first_poke_of_its_own_it_waits_at_its_gate_all_the_same(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = AirflowSettings(enabled=True, gates_enabled=(LEAVES,), first_poke="pool")
    monkeypatch.setattr(deferral, "airflow_settings", lambda: settings)
    task = Task(pool)
    task.start()
    assert task.waits
    assert task.trigger.at_gate
    assert Leaves.pokes == []
    Leaves.store.append("day1")
    assert task.resume(task.poked_in_pool()) == ["day1"]


@pytest.mark.parametrize("mode", ["poke", "reschedule"])
def test_if_that_finds_nothing_it_waits_again(pool: Pool, mode: str, told: list[str]) -> None:
    """With the rest of its timeout, from when it began to wait; a bounded number of times."""
    task = Task(pool, mode=mode)
    task.start()
    ids, began = [task.row()["id"]], time.time() - 100
    task.kwargs["started"] = began
    for number in range(gate.MOST_FLAPS):
        task.resume(flap(task))
        assert task.waits
        assert (task.kwargs["started"], task.kwargs["flaps"]) == (began, number + 1)
        assert time.time() - task.trigger.registered_at < 60  # its next resume is held anew
        row = task.row()
        assert row["state"] == "sensing"
        assert row["external_id"] == str(task.context["ti"].id)  # a mark or a clear is seen by this
        assert task.trigger.instance_id == row["id"]
        assert 480_000 < row["timeout_at"] - row["start_date"] < 501_000
        ids.append(row["id"])
    assert len(set(ids)) == len(ids)
    assert told == []
    landed = flap(task)
    Leaves.store.append("later")
    if mode == "reschedule":
        with pytest.raises(AirflowRescheduleException):
            task.resume(landed)
    else:
        Leaves.arrives.append(len(Leaves.pokes) + 3)
        assert task.resume(landed) == ["day1"]
    assert told == [f"{gate.MOST_FLAPS} times its poke has landed in the pool, and has found nothing on its worker"]


def test_it_waits_again_for_the_same_as_its_first_poke_has_shown(pool: Pool) -> None:
    """It joins those that wait for the same, and what the first poke did not find is still known."""
    task, other = Task(pool), Task(pool)
    other.context["ti"].run_id = "other"
    task.start()
    first = task.row()["poke_context"]
    landed = flap(task)
    other.start()
    task.resume(landed)
    assert [row["poke_context"] for row in rows(pool)] == [first, first]
    assert len({row["group_id"] for row in rows(pool)}) == 1


def flap(task: Task) -> InstanceResult:
    """Return the landing of a condition that holds for a moment."""
    Leaves.store.append("day1")
    landed = task.poked_in_pool()
    Leaves.store.clear()
    return landed


@pytest.mark.parametrize("mode", ["poke", "reschedule"])
@pytest.mark.parametrize(
    ("options", "waited", "holds", "raised"),
    [
        ({}, 10, "broken", OSError),
        ({"never_fail": True}, 10, "broken", AirflowSkipException),
        ({"silent_fail": True}, 10, "broken", None),
        ({}, 1_000, "", AirflowSensorTimeout),
        ({"soft_fail": True}, 1_000, "", AirflowSkipException),
        ({"soft_fail": True}, 10, "broken", OSError),
    ],
)
def test_its_own_poke_ends_it_otherwise(
    pool: Pool, options: Any, waited: float, holds: str, raised: Any, mode: str
) -> None:
    task = Task(pool, mode=mode, **options)
    task.start()
    landed = flap(task)
    task.kwargs["started"] = began = time.time() - waited
    task.context["ti"].get_first_reschedule_date = lambda _: dt.datetime.fromtimestamp(began, dt.UTC)
    Leaves.store.extend([holds] if holds else [])
    if raised is None:
        task.resume(landed)
        assert task.waits
    else:
        with pytest.raises(raised) as ended:
            task.resume(landed)
        assert type(ended.value) is raised


def test_its_execution_timeout_goes_on(pool: Pool) -> None:
    task = Task(pool, execution_timeout=dt.timedelta(seconds=300))
    task.start()
    task.kwargs["started"] = time.time() - 100
    task.resume(flap(task))
    limits = json.loads(task.row()["execution_context"])
    assert 150 < limits["execution_timeout"] < 201


@pytest.mark.parametrize(
    ("ending", "raised"),
    [
        (InstanceResult(State.FAILED, Ending.TIMEOUT), AirflowSensorTimeout),
        (InstanceResult(State.FAILED, Ending.EXECUTION_TIMEOUT), AirflowTaskTimeout),
        (InstanceResult(State.FAILED, Ending.POKE_ERROR, "OSError: gone"), OSError),
        (InstanceResult(State.SKIPPED, Ending.SKIP, "AirflowSkipException: no"), AirflowSkipException),
        (InstanceResult(State.CANCELLED, Ending.CANCELLED, "marked"), AirflowFailException),
    ],
)
def test_other_ends_are_the_pools(pool: Pool, ending: InstanceResult, raised: Any) -> None:
    task = Task(pool)
    task.start()
    with pytest.raises(raised):
        task.resume(ending)
    assert len(Leaves.pokes) == 1


def test_a_task_that_is_handed_back_goes_on_natively(pool: Pool) -> None:
    task = Task(pool)
    task.start()
    Leaves.store.append("day1")
    assert task.resume(InstanceResult.handed_back("drained")) == ["day1"]


@pytest.mark.parametrize("down", ["forget", "register"])
def test_where_the_pool_is_away_it_goes_on_natively(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, down: str, told: list[str]
) -> None:
    task = Task(pool)
    task.start()
    landed = flap(task)

    def fail(_: Any) -> Any:
        raise Unreachable("the database is away")

    monkeypatch.setattr(deferral, down, fail)
    Leaves.arrives.append(len(Leaves.pokes) + 2)
    assert task.resume(landed) == ["day1"]
    assert told == ["the database is away"]


def test_an_answer_that_is_lost_and_asked_for_again_finds_the_same_instance(pool: Pool) -> None:
    task = Task(pool)
    task.start()
    landed = flap(task)
    task.resume(landed)
    waiting = task.row()["id"]
    deferral.forget(deferral.key_of(task.context["ti"]))  # of one that still waits: nothing is forgotten
    assert task.row()["id"] == waiting


def test_a_sensor_that_has_changed_meanwhile_goes_on_natively(pool: Pool, told: list[str]) -> None:
    """The DAG file gives another prefix now: natively each poke has the old one."""
    task = Task(pool)
    task.start()
    landed = flap(task)
    task.arguments["prefix"] = "night"
    Leaves.arrives.append(len(Leaves.pokes) + 2)
    assert task.resume(landed) == ["day1"]
    assert told
    assert "built again from its arguments" in told[0]


# between versions


@pytest.mark.parametrize("event", [{"state": "success", "ending": "landed"}, {"value_of": 1}])
def test_an_event_of_an_earlier_triggerer_opens_the_gate_too(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, event: dict[str, Any]
) -> None:
    monkeypatch.setattr(conclude, "PAUSE", 0.0)
    task = Task(pool)
    task.start()
    Leaves.store.append("day1")
    assert task.resume(LANDED, event=event) == ["day1"]
    assert len(Leaves.pokes) == 2


def test_an_earlier_worker_finds_no_state_in_the_event_and_runs_natively() -> None:
    payload = InstanceResult(State.SUCCESS, Ending.LANDED, value_of=7).as_payload(at_gate=True)
    assert not {"state", "ending", "value_of"} & payload.keys()
    assert InstanceResult.read(payload) == LANDED


def test_the_setting_may_be_gone_when_it_resumes(pool: Pool, monkeypatch: pytest.MonkeyPatch, told: list[str]) -> None:
    task = Task(pool)
    task.start()
    landed = flap(task)
    monkeypatch.setattr(deferral, "airflow_settings", lambda: AirflowSettings(enabled=True))
    Leaves.arrives.append(len(Leaves.pokes) + 2)
    assert task.resume(landed) == ["day1"]
    assert len(told) == 1


def test_once_the_package_is_turned_off_it_does_not_wait_in_the_pool_again(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    """A pool that is drained gets no new instances."""
    task = Task(pool)
    task.start()
    landed = flap(task)
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    off = AirflowSettings(enabled=False, gates_enabled=(LEAVES,))
    monkeypatch.setattr(deferral, "airflow_settings", lambda: off)
    Leaves.arrives.append(len(Leaves.pokes) + 2)
    assert task.resume(landed) == ["day1"]
    assert told == ["[sensorpool] enabled is off"]


@pytest.mark.parametrize("flaps", ["3", True, None, [1]])
def test_an_odd_count_of_rounds_does_no_harm(pool: Pool, flaps: Any) -> None:
    task = Task(pool)
    task.start()
    Leaves.store.append("day1")
    landed = task.poked_in_pool()
    task.resume(landed, flaps=flaps)
    assert not task.waits


# who may have one


def test_a_class_that_is_not_listed_runs_natively(pool: Pool, told: list[str]) -> None:
    Leaves.arrives.append(2)
    assert Task(pool, Derived).start() == ["day1"]
    assert told == ["the execute of Leaves does more than wait: a part of it would be done twice"]
    assert rows(pool) == []


def test_the_trigger_keeps_its_gate() -> None:
    trigger = PoolTrigger(7, False, 1.0, at_gate=True)
    arguments: dict[str, Any] = trigger.serialize()[1]
    assert arguments["at_gate"] is True
    assert PoolTrigger(**arguments).at_gate
    assert "at_gate" not in PoolTrigger(7).serialize()[1]  # as every version wrote it
    assert not PoolTrigger(7, at_gate="yes").at_gate
