"""Sensors of the providers that wait at a gate: in the pool their pokes push and call nothing, at the end they do."""

import datetime as dt
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow.providers.google")

from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook
from airflow.providers.amazon.aws.hooks.sagemaker import SageMakerHook
from airflow.providers.amazon.aws.sensors.emr import EmrJobFlowSensor, EmrStepSensor
from airflow.providers.amazon.aws.sensors.mwaa import MwaaTaskSensor
from airflow.providers.amazon.aws.sensors.sagemaker import SageMakerTrainingSensor
from airflow.providers.amazon.aws.sensors.step_function import StepFunctionExecutionSensor
from airflow.providers.google.cloud.sensors import bigtable, cloud_storage_transfer_service, dataproc, gcs, pubsub
from airflow.providers.sftp.decorators.sensors.sftp import _DecoratedSFTPSensor
from airflow.providers.sftp.sensors import sftp
from airflow.sdk.exceptions import AirflowException
from airflow.sdk.execution_time import task_runner

from sensorpool import Pool
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.start import parse
from sensorpool.airflow.task import deferral, patch
from sensorpool.airflow.task.poolable import check
from sensorpool.model.states import Ending
from tests.airflow.running import Ti, in_dag
from tests.airflow.test_gate import Task, ours, pool, rows, told

__all__ = ["ours", "pool", "told"]


class Backend:
    """What the hooks of these sensors ask, and whether their condition holds there."""

    def __init__(self) -> None:
        self.holds = False
        self.fails = False
        self.asked: list[str] = []
        self.steps = 0
        self.holds_at = 0  # the look at a step from which it holds

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Be the hook that is constructed."""
        return self

    def state(self, done: str = "COMPLETED", failed: str = "FAILED") -> str:
        """Return the state of a job."""
        return failed if self.fails else done if self.holds else "RUNNING"

    project_id = "p"

    def list(self, *_: Any, **__: Any) -> Any:
        """List objects."""
        return ["day1", "day2"] if self.holds else []

    def exists(self, *_: Any) -> bool:
        """Look for an object."""
        return self.holds

    def describe_step(self, **_: Any) -> Any:
        """Describe a step of EMR."""
        self.steps += 1
        self.holds |= self.steps == self.holds_at
        return {"ResponseMetadata": {"HTTPStatusCode": 200}, "Step": {"Status": {"State": self.state()}}}

    def describe_cluster(self, **_: Any) -> Any:
        """Describe a cluster of EMR."""
        cluster = {"Status": {"State": self.state("TERMINATED", "TERMINATED_WITH_ERRORS")}, "LogUri": "s3n://logs/"}
        return {"ResponseMetadata": {"HTTPStatusCode": 200}, "Cluster": cluster}

    def describe_execution(self, **_: Any) -> Any:
        """Describe an execution of a state machine."""
        state = {"status": self.state("SUCCEEDED")}
        return state | ({"output": '{"rows": 7}'} if self.holds else {})

    def get_instance(self, **_: Any) -> Any:
        """Find an instance of Bigtable."""
        return "instance"

    def get_cluster_states_for_table(self, **_: Any) -> Any:
        """Say where a table is replicated."""
        ready = bigtable.ClusterState(bigtable.enums.Table.ReplicationState.READY)
        return {"a": ready if self.holds else None}

    def list_transfer_operations(self, **_: Any) -> Any:
        """List operations of the transfer service."""
        status = "SUCCESS" if self.holds else "IN_PROGRESS"
        return [{"name": "o", "metadata": {"counters": {}, "status": status}}]

    def isfile(self, _: str) -> bool:
        """Look for a file."""
        return self.holds


class PushedTi(Ti):
    """A task instance that pushes XComs as Airflow's does."""

    task: Any = SimpleNamespace(returns_dag_result=False)

    def xcom_push(self, key: str, value: Any) -> None:
        """Push one."""
        task_runner._xcom_push(self, key, value)  # type: ignore[arg-type]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Backend:
    made = Backend()
    monkeypatch.setattr(AwsGenericHook, "conn", property(lambda _: made))
    monkeypatch.setattr(AwsGenericHook, "get_conn", lambda _: made)
    monkeypatch.setattr(AwsGenericHook, "conn_region_name", "eu-west-1")
    monkeypatch.setattr(AwsGenericHook, "conn_partition", "aws")
    monkeypatch.setattr(gcs, "GCSHook", made)
    monkeypatch.setattr(bigtable, "BigtableHook", made)
    monkeypatch.setattr(sftp, "SFTPHook", made)
    made.operations_contain_expected_statuses = (  # type: ignore[attr-defined]
        cloud_storage_transfer_service.CloudDataTransferServiceHook.operations_contain_expected_statuses
    )
    monkeypatch.setattr(cloud_storage_transfer_service, "CloudDataTransferServiceHook", made)
    monkeypatch.setattr(SageMakerHook, "describe_training_job", lambda _, name: training_job(made))
    monkeypatch.setattr(SageMakerHook, "describe_training_job_with_log", lambda *_: training_job_with_log(made))
    return made


def training_job(made: Backend) -> Any:
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    found = {"TrainingJobStatus": made.state("Completed", "Failed").replace("RUNNING", "InProgress")}
    more = {"ResourceConfig": {"InstanceCount": 1}, "FailureReason": "no data", "ResponseMetadata": {}}
    more["ResponseMetadata"]["HTTPStatusCode"] = 200
    return found | more | {"TrainingStartTime": now, "TrainingEndTime": now}


def training_job_with_log(made: Backend) -> Any:
    made.asked.append("log")
    return 1, training_job(made), 0.0


@pytest.fixture
def pushed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What the task has pushed."""
    sent: list[tuple[str, Any]] = []

    def send(msg: Any) -> Any:
        if type(msg).__name__ == "SetXCom":
            sent.append((msg.key, msg.value))

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=send), raising=False)
    return sent


def called(files_found: list[str] | None = None, note: Any = None) -> str:
    """Be called for what is found."""
    return f"called with {files_found}"


EMR_LINKS = {"emr_cluster", "emr_logs"}
CASES: dict[str, tuple[Any, dict[str, Any], Any, set[str], set[str]]] = {
    # class, arguments, what its execute returns, what its first and its last poke push
    "object": (gcs.GCSObjectExistenceSensor, {"bucket": "b", "object": "o"}, True, set(), set()),
    "prefix": (
        gcs.GCSObjectsWithPrefixExistenceSensor,
        {"bucket": "b", "prefix": "day"},
        ["day1", "day2"],
        set(),
        set(),
    ),
    "step": (EmrStepSensor, {"job_flow_id": "j", "step_id": "s"}, None, EMR_LINKS, EMR_LINKS),
    "flow": (EmrJobFlowSensor, {"job_flow_id": "j"}, None, EMR_LINKS, EMR_LINKS),
    "machine": (StepFunctionExecutionSensor, {"execution_arn": "a"}, None, set(), {"output"}),
    "table": (
        bigtable.BigtableTableReplicationCompletedSensor,
        {"instance_id": "i", "table_id": "t", "project_id": "p"},
        None,
        set(),
        {"tables_key"},
    ),
    "transfer": (
        cloud_storage_transfer_service.CloudDataTransferServiceJobStatusSensor,
        {"job_name": "j", "expected_statuses": "SUCCESS", "project_id": "p"},
        None,
        {"cloud_storage_transfer_job"},
        {"sensed_operations", "cloud_storage_transfer_job"},
    ),
    "training": (SageMakerTrainingSensor, {"job_name": "j"}, None, set(), set()),
    "files": (
        sftp.SFTPSensor,
        {"path": "/in", "python_callable": called, "op_kwargs": {"note": 1}},
        {"files_found": ["/in"], "decorator_return_value": "called with ['/in']"},
        set(),
        set(),
    ),
    "decorated": (
        _DecoratedSFTPSensor,
        {"path": "/in", "python_callable": lambda: "called", "multiple_outputs": False},
        {"files_found": ["/in"], "decorator_return_value": "called"},
        set(),
        set(),
    ),
}


def task_of(pool: Pool, name: str, **more: Any) -> Task:
    cls, arguments = CASES[name][:2]
    task = Task(pool, cls, **{"timeout": 5, **arguments, **more})
    task.context["ti"] = PushedTi("dag", "wait", id=task.context["ti"].id)
    return task


@pytest.mark.parametrize("mode", ["poke", "reschedule"])
@pytest.mark.parametrize("name", CASES)
def test_it_ends_as_natively(
    pool: Pool,
    backend: Backend,
    pushed: list[Any],
    told: list[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    mode: str,
) -> None:
    _, _, value, first, last = CASES[name]
    task = task_of(pool, name, mode=mode)
    assert task.start() is None
    assert told == []
    assert task.waits
    assert {key for key, _ in pushed} == first
    pushed.clear()
    backend.asked.clear()
    backend.holds = True
    landed = task.poked_in_pool()
    assert landed.ending is Ending.LANDED, landed.reason
    assert pushed == backend.asked == []
    assert task.resume(landed) == value
    assert not task.waits
    ours = list(pushed)
    assert {key for key, _ in ours} == last
    # natively
    pushed.clear()
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    assert task.start() == value
    assert pushed == ours


@pytest.mark.parametrize("name", CASES)
def test_it_waits_again_where_nothing_is_left(
    pool: Pool, backend: Backend, pushed: list[Any], told: list[str], name: str
) -> None:
    task = task_of(pool, name)
    task.start()
    backend.holds = True
    landed = task.poked_in_pool()
    backend.holds = False
    task.resume(landed)
    assert task.waits, told
    backend.holds = True
    assert task.resume(task.poked_in_pool()) == CASES[name][2]


@pytest.mark.parametrize("name", ["step", "machine", "training"])
def test_a_job_that_fails_fails_it(pool: Pool, backend: Backend, pushed: list[Any], name: str) -> None:
    task = task_of(pool, name)
    task.start()
    backend.asked.clear()
    backend.fails = True
    found = task.poked_in_pool()
    assert found.ending is Ending.POKE_ERROR, found.reason
    with pytest.raises(AirflowException, match="fail"):
        task.resume(found)
    assert backend.asked == (["log"] if name == "training" else [])  # the log of a job that failed is the task's


def test_a_training_whose_log_is_not_wanted_needs_no_gate(pool: Pool, backend: Backend) -> None:
    task = Task(pool, SageMakerTrainingSensor, job_name="j", print_log=False)
    task.start()
    assert not task.trigger.at_gate
    assert task.trigger.direct


def test_files_without_a_callable_need_no_gate_and_share_a_poke_with_one(pool: Pool, backend: Backend) -> None:
    task = Task(pool, sftp.SFTPSensor, path="/in")
    task.start()
    assert task.trigger.direct
    other = task_of(pool, "files")
    other.context["ti"].task_id = "other"
    other.start()
    assert other.waits
    first, second = rows(pool)
    assert first["group_id"] == second["group_id"]


class Derived(EmrStepSensor):
    """A company's."""


class Asks(EmrStepSensor):
    """Asks its task for more than a push."""

    def get_emr_response(self, context: Any) -> Any:
        """Ask."""
        _ = context["ti"].run_id
        return super().get_emr_response(context)


@pytest.mark.parametrize(
    ("cls", "gates", "why"),
    [
        (Derived, (), "gates_enabled"),
        (Derived, (f"{__name__}.Derived",), ""),
        (Asks, (f"{__name__}.Asks",), "asks for ti.run_id"),
    ],
)
def test_a_derived_class_is_listed_by_its_company(
    pool: Pool,
    backend: Backend,
    pushed: list[Any],
    told: list[str],
    monkeypatch: pytest.MonkeyPatch,
    cls: Any,
    gates: Any,
    why: str,
) -> None:
    made = AirflowSettings(enabled=True, gates_enabled=gates)
    monkeypatch.setattr(deferral, "airflow_settings", lambda: made)
    task = Task(pool, cls, job_flow_id="j", step_id="s")
    task.context["ti"] = PushedTi("dag", "wait")
    backend.holds_at = 2
    task.start()
    assert task.waits == (not why)
    assert [why in each for each in told] == ([True] if why else [])


@pytest.mark.parametrize(
    ("cls", "arguments", "why"),
    [
        (
            pubsub.PubSubPullSensor,
            {"project_id": "p", "subscription": "s", "return_immediately": True},
            "takes messages",
        ),
        (dataproc.DataprocJobSensor, {"dataproc_job_id": "j", "region": "r", "wait_timeout": 5}, "with wait_timeout"),
    ],
)
def test_listing_opens_no_gate_for_a_poke_that_is_known_otherwise(
    pool: Pool, cls: Any, arguments: dict[str, Any], why: str
) -> None:
    path = f"{cls.__module__}.{cls.__qualname__}"
    settings = pool.settings.model_copy(update={"sensors_enabled": frozenset({path})})
    with pytest.raises(NotPoolable, match=why):
        check(in_dag(cls, **arguments), {}, settings, AirflowSettings(gates_enabled=(path,)))


def test_a_job_of_dataproc_is_pooled_where_it_counts_no_seconds(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataproc.DataprocJobSensor, "poke", lambda *_: False)
    task = Task(pool, dataproc.DataprocJobSensor, dataproc_job_id="j", region="r", project_id="p", timeout=5)
    task.start()
    assert task.waits


def test_the_newest_run_is_found_once_and_then_waited_for(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As natively in poke mode: a run that begins later is not its."""
    runs = ["first"]

    def ask(_: Any, *, path: str, **__: Any) -> Any:
        if path.endswith("dagRuns"):
            return {"RestApiResponse": {"dag_runs": [{"dag_run_id": run} for run in runs]}}
        assert "/first/" in path
        return {"RestApiResponse": {"state": state[0]}}

    state = ["running"]
    hook: Callable[..., Any] = MwaaTaskSensor.aws_hook_class
    monkeypatch.setattr(hook, "invoke_rest_api", ask)
    task = Task(pool, MwaaTaskSensor, external_env_name="e", external_dag_id="d", external_task_id="t", timeout=5)
    task.start()
    assert task.waits
    assert not task.trigger.at_gate
    runs.append("second")
    state[0] = "success"
    landed = task.poked_in_pool()
    assert landed.ending is Ending.LANDED, landed.reason
    assert task.resume(landed) is None
    assert task.sensor.external_dag_run_id == "first"


@pytest.mark.parametrize("name", ["object", "step"])
def test_it_begins_on_a_worker(pool: Pool, name: str) -> None:
    cls, arguments = CASES[name][:2]
    settings = AirflowSettings(enabled=True, start="scheduler")
    with pytest.raises(NotPoolable, match="it waits at a gate"):
        parse.blueprint_of(in_dag(cls, **arguments), pool.settings, settings)


def test_a_sensor_that_looks_for_its_run_begins_on_a_worker(pool: Pool) -> None:
    sensor = in_dag(MwaaTaskSensor, external_env_name="e", external_dag_id="d", external_task_id="t")
    with pytest.raises(NotPoolable, match="prepares"):
        parse.blueprint_of(sensor, pool.settings, AirflowSettings(enabled=True, start="scheduler"))


def test_in_reschedule_mode_each_poke_looks_for_the_newest_run(pool: Pool) -> None:
    arguments = {"external_env_name": "e", "external_dag_id": "d", "external_task_id": "t", "mode": "reschedule"}
    with pytest.raises(NotPoolable, match="before each poke"):
        check(in_dag(MwaaTaskSensor, **arguments), {}, pool.settings, AirflowSettings())
    check(in_dag(MwaaTaskSensor, external_dag_run_id="r", **arguments), {}, pool.settings, AirflowSettings())
