"""What we use of Airflow under private or moving names is still there, and means what it meant."""

import inspect
import subprocess
import sys
from collections.abc import Callable

import pytest

pytest.importorskip("airflow")

from airflow._shared.secrets_masker import mask_secret as mask_in_core
from airflow._shared.secrets_masker import reset_secrets_masker as reset_core_masker
from airflow.policies import task_policy
from airflow.sdk import DAG
from airflow.sdk._shared.secrets_masker import mask_secret, reset_secrets_masker
from airflow.sdk.api.datamodels._generated import DagRun
from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.sdk.execution_time.comms import TriggerDagRun
from airflow.sdk.execution_time.supervisor import InProcessSupervisorComms
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from sensorpool.airflow import policy
from sensorpool.airflow.compat import features, operators, secrets_masker, task_runtime
from sensorpool.airflow.compat.exceptions import AirflowException, AirflowTaskTimeout
from sensorpool.airflow.task import patch
from sensorpool.config import extensions
from tests.airflow.needs import needs
from tests.airflow.running import Flag, apply_policies, as_runner, context_of, in_dag
from tests.airflow.versions import DagSerialization, ResumableJobMixin


def test_constructor_arguments_are_those_given_and_inherited_ones() -> None:
    found = operators.constructor_arguments(in_dag(Flag, flag="x", poke_interval=3, retries=2))
    assert (found["flag"], found["poke_interval"], found["retries"]) == ("x", 3, 2)


def test_every_argument_and_attribute_of_a_bare_sensor_is_a_base_one() -> None:
    assert {"task_id", "poke_interval", "timeout", "soft_fail", "mode", "retries", "pool"} <= operators.base_arguments()
    sensor = in_dag(Flag, flag="x")
    assert vars(sensor).keys() - operators.base_attributes() - {"flag"} <= {
        name for name in vars(sensor) if name.startswith("_BaseOperator__")
    }


def test_execute_asks_for_the_next_interval_by_this_name() -> None:
    assert list(inspect.signature(getattr(BaseSensorOperator, operators.NEXT_INTERVAL)).parameters) == [
        "self",
        "started_at",
        "run_duration",
        "poke_count",
    ]
    source = inspect.getsource(inspect.unwrap(BaseSensorOperator.execute))
    assert source.count(f"self.{operators.NEXT_INTERVAL}(started_at, run_duration, poke_count)") == 2


def test_a_sensor_is_resumed_by_a_method_of_its_own_class() -> None:
    """Which applies soft_fail and never_fail, and is patched to give them back."""
    assert "resume_execution" in vars(BaseSensorOperator)
    source = inspect.getsource(inspect.unwrap(BaseSensorOperator.resume_execution))
    assert "self.soft_fail" in source
    assert "self.never_fail" in source


def test_a_task_timeout_is_no_airflow_exception() -> None:
    """So BaseSensorOperator.resume_execution does not make a skip of it."""
    assert not issubclass(AirflowTaskTimeout, AirflowException)


@needs(features.RUN_AFTER)
def test_a_run_is_started_with_these_fields() -> None:
    fields = {"dag_id", "run_id", "logical_date", "run_after", "conf", "reset_dag_run", "note"}
    assert fields <= TriggerDagRun.model_fields.keys()


@needs(features.RESUMABLE_JOBS)
def test_resumable_jobs_have_this_protocol() -> None:
    assert {"submit_job", "get_job_status", "is_job_active", "poll_until_complete", "get_job_result"} <= set(
        ResumableJobMixin.__abstractmethods__
    ) | set(dir(ResumableJobMixin))
    source = inspect.getsource(inspect.unwrap(ResumableJobMixin.execute_resumable))
    assert "self.poll_until_complete(external_id, context)" in source


def test_a_test_run_is_known_by_its_comms(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.execution_time import task_runner

    assert not task_runtime.is_test_run()
    comms = InProcessSupervisorComms.__new__(InProcessSupervisorComms)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", comms, raising=False)
    assert task_runtime.is_test_run()


@needs(features.TEAM_OF_RUN)
def test_the_run_that_a_worker_is_told_names_its_team() -> None:
    assert "team_name" in DagRun.model_fields
    source = inspect.getsource(RuntimeTaskInstance.get_template_context)
    assert "dag_run = from_server.dag_run" in source
    assert '"dag_run": dag_run' in source


@pytest.mark.parametrize(
    ("value", "holds"),
    [({"path": "/data"}, False), ({"headers": {"Authorization": "x"}}, True), ({"api_key": "x"}, True)],
)
def test_secrets_are_known(value: dict[str, object], holds: bool) -> None:
    assert secrets_masker.holds_secret(value) is holds


@pytest.mark.parametrize("mask", [mask_in_core, mask_secret])
def test_secrets_of_both_maskers_are_known_at_any_depth(mask: Callable[[str], None]) -> None:
    mask("Canary4Secret")
    try:
        assert secrets_masker.holds_secret({"a": [[[[[[[["with Canary4Secret"]]]]]]]]})
        assert not secrets_masker.holds_secret({"a": [[[[[[[["with another"]]]]]]]]})
    finally:
        reset_core_masker()
        reset_secrets_masker()


def test_the_policy_is_found_and_patches_once() -> None:
    assert extensions.named("airflow.policy")["sensorpool"].load() is policy
    assert inspect.signature(policy.task_policy).parameters.keys() == inspect.signature(task_policy).parameters.keys()
    apply_policies(None)
    patched = BaseSensorOperator.execute
    apply_policies(None)
    assert BaseSensorOperator.execute is patched
    assert hasattr(BaseSensorOperator, patch.RESUME)


def test_the_policy_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch, "install", lambda: 1 / 0)
    monkeypatch.setattr(policy, "_failed", False)
    apply_policies(None)
    apply_policies(None)


def test_the_policy_imports_no_airflow_and_little_else() -> None:
    code = (
        "import sys, sensorpool.airflow.policy, sensorpool.airflow.task.patch as i; i.install();"
        "print([m for m in sys.modules if m.split('.')[0] in {'airflow', 'celery', 'sqlalchemy', 'pydantic', 'redis'}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_the_serialized_dag_stays_the_same() -> None:
    with DAG("dag", schedule=None) as dag:
        Flag(task_id="wait", flag="x")
    before = DagSerialization.to_dict(dag)
    for task in dag.tasks:
        apply_policies(task)
    assert DagSerialization.to_dict(dag) == before


def test_a_part_of_ours_that_cannot_be_imported_leaves_the_sensor_native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch, "is_enabled", lambda: True)
    monkeypatch.setattr(patch, "import_module", lambda _: 1 / 0)
    monkeypatch.setattr(Flag, "answers", {"x": True})
    patch.install()
    sensor = in_dag(Flag, flag="x")
    assert as_runner(sensor, "execute", context_of(sensor)) is None
