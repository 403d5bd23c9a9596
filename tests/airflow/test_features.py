"""The feature table is true on each version of Airflow, and what is done without a feature is done."""

import importlib
import inspect
import tomllib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("airflow")

from airflow.configuration import conf
from airflow.jobs import triggerer_job_runner
from airflow.models.taskinstance import TaskInstance
from airflow.sdk import DAG
from airflow.sdk.definitions.context import KNOWN_CONTEXT_KEYS
from airflow.sdk.execution_time.comms import TriggerDagRun
from airflow.triggers.base import BaseTrigger
from sqlalchemy import Uuid

from sensorpool.airflow import policy
from sensorpool.airflow.compat import features, task_runtime
from sensorpool.airflow.compat.features import Feature
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.pool import checks
from sensorpool.airflow.start import one_task, parse
from sensorpool.airflow.task import poolable
from sensorpool.config.settings import Settings
from tests.airflow.needs import needs
from tests.airflow.running import Flag, context_of, in_dag

ROOT = Path(__file__).parents[2]


def can_import(module: str, name: str = "") -> Callable[[], bool]:
    def probe() -> bool:
        try:
            found = importlib.import_module(module)
        except ImportError:
            return False
        return not name or hasattr(found, name)

    return probe


def has_team_of_run() -> bool:
    from airflow.sdk.api.datamodels._generated import DagRun

    return "team_name" in DagRun.model_fields


PROBES: dict[Feature, Callable[[], bool]] = {
    features.TASK_EXCEPTIONS: can_import("airflow.sdk.exceptions", "TaskDeferred"),
    features.SDK_LISTENERS: can_import("airflow.sdk.listener"),
    features.SDK_HOOKS: can_import("airflow.sdk.providers_manager_runtime", "ProvidersManagerTaskRuntime"),
    features.SDK_METRICS: can_import("airflow.sdk._shared.observability.metrics.stats"),
    features.TASK_IDS: lambda: isinstance(TaskInstance.__table__.c.id.type, Uuid),
    features.TEAMS: lambda: conf.has_option("core", "multi_team"),
    features.RUN_NOTES: lambda: "note" in TriggerDagRun.model_fields,
    features.RUN_AFTER: lambda: "run_after" in TriggerDagRun.model_fields,
    features.TEAM_OF_RUN: has_team_of_run,
    features.START_FROM_TRIGGER: lambda: hasattr(BaseTrigger, "render_template_fields"),
    features.TRIGGER_ON_KILL: lambda: hasattr(BaseTrigger, "on_kill"),
    features.TASK_STATE_STORE: lambda: "task_state_store" in KNOWN_CONTEXT_KEYS,
    features.RESUMABLE_JOBS: can_import("airflow.sdk.bases.resumablejobmixin"),
    features.HUMAN_INPUT: can_import("airflow.sdk.exceptions", "TaskAwaitingInput"),
    features.RETRY_POLICIES: can_import("airflow.sdk.definitions.retry_policy"),
    features.API_SERVER_URL: can_import("airflow.executors.base_executor", "get_execution_api_server_url"),
    features.METRIC_FUNCTIONS: can_import("airflow.sdk.observability.stats", "incr"),
    features.LOOPS: can_import("airflow.sdk.definitions.loop"),
    features.TRIES_IN_ONE_TABLE: lambda: "working_set" in TaskInstance.__table__.c,
}


@pytest.fixture
def as_version(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Take this Airflow for one of another version."""
    return lambda *version: monkeypatch.setattr(features, "version", lambda: version)


@pytest.mark.parametrize("feature", features.TABLE, ids=lambda feature: feature.what)
def test_this_airflow_has_what_the_table_says(feature: Feature) -> None:
    assert PROBES[feature]() is features.has(feature)


def test_the_table_is_complete() -> None:
    named = {value for value in vars(features).values() if isinstance(value, Feature)}
    assert named == set(features.TABLE) == set(PROBES)
    assert len(features.TABLE) == len(named)
    assert all(features.OLDEST < feature.since <= features.NEWEST for feature in features.TABLE)


def test_the_page_has_the_table() -> None:
    page = (ROOT / "docs" / "airflow.md").read_text()
    for feature in features.TABLE:
        major, minor = feature.since
        assert f"| {major}.{minor} | {feature.what} | {feature.without} |" in page


def test_the_package_takes_the_versions_of_the_table() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (major, oldest), (_, newest) = features.OLDEST, features.NEWEST
    assert f"apache-airflow>={major}.{oldest},<{major}.{newest + 1}" in project["optional-dependencies"]["airflow"]
    assert features.OLDEST <= features.version() <= features.NEWEST


def test_the_task_sdk_names_its_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    import airflow

    monkeypatch.delattr(airflow, "__version__")
    assert features.version.__wrapped__() == features.version()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"CORE__EXECUTION_API_SERVER_URL": "http://internal:1/execution"},
        {"API__BASE_URL": "https://airflow.example.com/team/"},
        {"API__BASE_URL": "/"},
        {"API__BASE_URL": "/team"},
    ],
    ids=str,
)
@needs(features.API_SERVER_URL)
def test_the_url_of_the_api_is_found_as_by_airflow(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch, as_version: Callable[..., None]
) -> None:
    for name, value in options.items():
        monkeypatch.setenv(f"AIRFLOW__{name}", value)
    found = task_runtime.execution_api_url("health")
    as_version(3, 2)
    assert task_runtime.execution_api_url("health") == found


def test_where_the_team_of_a_task_is_not_told_all_run_natively(
    monkeypatch: pytest.MonkeyPatch, as_version: Callable[..., None]
) -> None:
    sensor = in_dag(Flag, flag="x")
    settings = Settings(sensors_enabled=("tests.airflow.running.Flag",))
    as_version(3, 2)
    assert poolable.admit(sensor, context_of(sensor), settings, AirflowSettings()) == "tests.airflow.running.Flag"
    assert not list(checks.check_teams())
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    with pytest.raises(NotPoolable, match="does not say of which team"):
        poolable.admit(sensor, context_of(sensor), settings, AirflowSettings())
    (finding,) = checks.check_teams()
    assert "all tasks run natively" in finding.said
    as_version(3, 1)  # which has no teams, whatever the option says
    assert poolable.admit(sensor, context_of(sensor), settings, AirflowSettings()) == "tests.airflow.running.Flag"
    assert not list(checks.check_teams())


@pytest.mark.parametrize(
    ("region", "map_index", "is_pooled"),
    [(None, -1, True), (UUID(int=0), -1, True), (UUID(int=7), 3, True), (UUID(int=7), -1, False)],
    ids=["no regions", "no region", "mapped", "loop"],
)
def test_a_sensor_in_a_loop_runs_natively(region: UUID | None, map_index: int, is_pooled: bool) -> None:
    """The rounds of a loop have one key."""
    sensor = in_dag(Flag, flag="x")
    context = context_of(sensor)
    context["ti"].map_index, context["ti"].region_id = map_index, region
    settings = Settings(sensors_enabled=("tests.airflow.running.Flag",))
    with nullcontext() if is_pooled else pytest.raises(NotPoolable, match="loop"):
        poolable.admit(sensor, context, settings, AirflowSettings())


def test_an_airflow_that_gives_no_context_starts_every_sensor_on_a_worker(
    monkeypatch: pytest.MonkeyPatch, as_version: Callable[..., None]
) -> None:
    patched: list[Any] = []
    monkeypatch.setattr(one_task, "install", patched.append)
    ours = AirflowSettings(enabled=True, start="scheduler")
    as_version(3, 2)
    policy._patch_triggerer(triggerer_job_runner)
    assert not patched
    with DAG("dag", schedule=None):
        sensor = Flag(task_id="wait", flag="x")
    with pytest.raises(NotPoolable):
        parse.blueprint_of(sensor, Settings(sensors_enabled=("tests.airflow.running.Flag",)), ours)
    (finding,) = checks.check_start(ours)
    assert finding.level == "warning"
    as_version(3, 3)
    policy._patch_triggerer(triggerer_job_runner)
    assert patched == [triggerer_job_runner]
    assert not list(checks.check_start(ours))


def test_listeners_are_asked_for_where_the_task_runner_asks() -> None:
    from airflow.sdk.execution_time import task_runner

    assert task_runtime._listener_manager() is task_runner.get_listener_manager()


def test_metrics_are_sent_where_airflow_sends_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    place = "airflow.sdk.observability.stats" if features.has(features.METRIC_FUNCTIONS) else ""
    from airflow.sdk.execution_time import task_runner

    stats = importlib.import_module(place) if place else task_runner.Stats
    if place:
        monkeypatch.setattr(stats, "incr", lambda name, **given: sent.append((name, given)))
    else:
        recorder = type("Recorder", (), {"incr": staticmethod(lambda name, **given: sent.append((name, given)))})
        monkeypatch.setattr(inspect.getmodule(type(stats)), "Stats", recorder)
    task_runtime.count_metric("native", {"reason": "team"})
    assert sent == [("sensorpool.native", {"tags": {"reason": "team"}})]
