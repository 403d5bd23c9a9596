"""Tasks of teams (`[core] multi_team`): each waits with the Connections and Variables of its team."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

pytest.importorskip("airflow")

from airflow.models.connection import Connection
from airflow.models.variable import Variable as StoredVariable
from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk import BaseHook, Variable
from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.sdk.execution_time import supervisor, task_runner
from airflow.sdk.execution_time.comms import GetConnection, GetVariable, VariableResult
from airflow.utils.session import create_session
from sqlalchemy import delete

from sensorpool import Settings
from sensorpool.airflow.compat import features, secrets_backends
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.pool.adapters.kept_operator import _Connections
from sensorpool.airflow.pool.adapters.sensor import adapt
from sensorpool.airflow.pool.shared_calls import files
from sensorpool.airflow.proof.arguments import external_inputs, rebuild
from sensorpool.airflow.proof.watch import process_start
from sensorpool.airflow.proof.watch.denials import Denials
from sensorpool.airflow.task import poolable, resumable_job
from sensorpool.airflow.task.poolable import Condition
from sensorpool.errors import HandBack, InfraFailure
from sensorpool.model.states import Outcome
from sensorpool.poke.classes import Classes
from tests.airflow.dag_file_world import Group, World
from tests.airflow.metadata import Metadata
from tests.airflow.needs import needs
from tests.airflow.running import context_of, in_dag
from tests.airflow.versions import clear_secrets_backends_cache

pytestmark = [
    needs(features.TEAM_OF_RUN),
    pytest.mark.filterwarnings("default::DeprecationWarning"),  # the server's own code gives some
]
TEAMS = ("team_a", "team_b", None)
_OF_SERVER = secrets_backends._of_server


class Asks(BaseSensorOperator):
    """Lands when the host of its Connection, or its Variable, is that of a team."""

    in_a_thread: ClassVar[bool] = False

    def __init__(self, *, conn_id: str = "lake", wanted: str = "a.example", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.wanted = wanted

    def poke(self, _: Any) -> bool:
        found: list[Any] = []

        def ask() -> None:
            try:
                found.append(BaseHook.get_connection(self.conn_id).host)
            except BaseException as error:
                found.append(error)

        if not self.in_a_thread:
            ask()
        else:
            thread = threading.Thread(target=ask)
            thread.start()
            thread.join()
        if isinstance(found[0], BaseException):
            raise found[0]
        return bool(found[0] == self.wanted)


class Strict(BaseSensorOperator):
    """Takes no `doc`."""

    def __init__(self, **kwargs: Any) -> None:
        if "doc" in kwargs:
            raise TypeError("unexpected keyword argument 'doc'")
        super().__init__(**kwargs)

    def poke(self, _: Any) -> bool:
        return False


@pytest.fixture(autouse=True)
def teams(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    forget()
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", None, raising=False)  # as in a process of the pool's
    monkeypatch.setattr(supervisor, "ensure_secrets_backend_loaded", supervisor.ensure_secrets_backend_loaded)
    yield
    forget()


def forget() -> None:
    """Have configuration looked at anew, as in another process."""
    clear_secrets_backends_cache()
    _OF_SERVER.cache_clear()


@pytest.fixture
def of_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Connection of one name in the environment for each of two teams."""
    for letter in "ab":
        connection = json.dumps({"conn_type": "http", "host": f"{letter}.example"})
        monkeypatch.setenv(f"AIRFLOW_CONN__TEAM_{letter.upper()}___LAKE", connection)


def condition(cls: Any, team: str | None, **arguments: Any) -> Condition:
    """Return the condition of a task of a team."""
    settings = Settings.load(sensors_enabled=f"{cls.__module__}.{cls.__qualname__}")
    sensor = in_dag(cls, **arguments)
    context = context_of(sensor, dag_run=SimpleNamespace(team_name=team))
    return poolable.condition_of(sensor, context, settings, AirflowSettings())


def pooled(cls: Any, team: str | None, **arguments: Any) -> Any:
    """Return what the pool pokes for a task of a team."""
    path = f"{cls.__module__}.{cls.__qualname__}"
    registered = json.loads(json.dumps(condition(cls, team, **arguments).poke_context))
    return Classes([path]).find(path).construct(registered)


# lookups


@pytest.fixture
def rows(airflow_metadata: Metadata, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Connection and a Variable of each team, and of none, in Airflow's database; nothing of a task is here."""
    from airflow.models.team import Team

    with create_session() as session:
        session.add_all([Team(name=team) for team in TEAMS if team])
        session.flush()
        for team in TEAMS:
            session.add(Connection(conn_id=f"of_{team}", conn_type="http", host=f"{team}.example", team_name=team))
            session.add(StoredVariable(key=f"day_{team}", val=f"day of {team}", team_name=team))
    monkeypatch.delattr(task_runner, "SUPERVISOR_COMMS", raising=False)
    yield
    with create_session() as session:
        for model in (Connection, StoredVariable, Team):
            session.execute(delete(model))


def of_server(ask: Callable[[], Any]) -> Any:
    """Return the answer of Airflow's own code in its server; None if there is none."""
    try:
        return ask()
    except Exception:
        return None


@pytest.mark.parametrize("team", TEAMS)
def test_a_lookup_for_a_team_is_answered_as_the_server_does(rows: None, of_environment: None, team: str | None) -> None:
    found = []
    for name in ("of_team_a", "of_team_b", "of_None", "lake", "no"):
        native = of_server(lambda n=name: Connection.get_connection_from_secrets(n, team_name=team))  # type: ignore[misc]
        ours = secrets_backends.look_up(GetConnection(conn_id=name), team)
        assert (native and native.host) == (ours and ours.host), name
        found.append(ours and ours.host)
    for name in ("day_team_a", "day_team_b", "day_None"):
        native = of_server(lambda n=name: StoredVariable.get_variable_from_secrets(n, team_name=team))  # type: ignore[misc]
        ours = secrets_backends.look_up(GetVariable(key=name), team)
        assert native == (ours and ours.value), name
        found.append(ours and ours.value)
    own = {
        "team_a": ["team_a.example", None, "None.example", "a.example", None, "day of team_a", None, "day of None"],
        "team_b": [None, "team_b.example", "None.example", "b.example", None, None, "day of team_b", "day of None"],
        None: [None, None, "None.example", None, None, None, None, "day of None"],
    }
    assert found == own[team]


def test_a_pool_without_the_option_answers_no_team(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "False")
    with pytest.raises(LookupError, match=r"is of the team team_a, and \[core\] multi_team is not set in the pool"):
        secrets_backends.look_up(GetConnection(conn_id="lake"), "team_a")


def test_a_backend_that_forbids_a_lookup_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.exceptions import AirflowSecretsBackendAccessDenied

    class Forbids:
        def get_connection(self, conn_id: str, team_name: str | None = None) -> None:
            raise AirflowSecretsBackendAccessDenied(f"{team_name} may not read {conn_id}")

    class NotReached:
        def get_connection(self, conn_id: str) -> None:
            raise AssertionError("it is asked")

    monkeypatch.setattr(secrets_backends, "_of_server", lambda **_: (Forbids(), NotReached()))
    with pytest.raises(AirflowSecretsBackendAccessDenied, match="team_a may not read lake"):
        secrets_backends.look_up(GetConnection(conn_id="lake"), "team_a")


def test_a_backend_that_knows_no_teams_is_asked_without(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class OfBefore:
        def get_variable(self, key: str) -> str:
            asked.append(key)
            return "monday"

    monkeypatch.setattr(secrets_backends, "_of_server", lambda **_: (OfBefore(),))
    assert secrets_backends.look_up(GetVariable(key="day"), "team_a").value == "monday"
    assert asked == ["day"]


# conditions


def test_each_team_has_a_condition_of_its_own() -> None:
    contexts = {team: condition(Asks, team).poke_context for team in TEAMS}
    assert {team: external_inputs.team_of(context) for team, context in contexts.items()} == {t: t for t in TEAMS}
    assert condition(Asks, "team_a").poke_context == contexts["team_a"]
    assert "team" not in json.dumps(contexts[None])
    for context in contexts.values():
        operator = rebuild.rebuild(Asks, context)
        assert external_inputs.differing_attribute(operator, context) is None
        after = external_inputs.with_first_poke(context, ["Connection x"], ["Connection y"])
        assert external_inputs.team_of(after) == external_inputs.team_of(context)
        assert external_inputs.team_of(external_inputs.with_first_poke_of(context, contexts["team_b"])) == (
            external_inputs.team_of(context)
        )
        assert external_inputs.has_digests(context) == external_inputs.has_digests(contexts[None])
        assert external_inputs.own_digests_of(context) == external_inputs.own_digests_of(contexts[None])


def test_a_class_that_cannot_say_its_team_runs_natively() -> None:
    assert condition(Strict, None).poke_context == {}
    with pytest.raises(NotPoolable, match="is of the team team_a, and its class takes no `doc` to tell the pool so"):
        condition(Strict, "team_a")


def test_a_job_of_a_team_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.airflow.test_resumable_job import Submits

    told: list[Any] = []
    monkeypatch.setattr(resumable_job.poolable, "admit", lambda *_: "tests.Submits")
    monkeypatch.setattr(resumable_job.deferral, "pool", lambda: SimpleNamespace(settings=None))
    monkeypatch.setattr(resumable_job, "_wait_in_pool", lambda *given: told.append(given))
    operator = in_dag(Submits, cluster="c")
    context = context_of(operator, dag_run=SimpleNamespace(team_name="team_b"))
    resumable_job.execute(operator, context, lambda operator, context: operator.poll_until_complete("job-7", context))
    ((_, _, arguments, *_),) = told
    assert external_inputs.team_of(arguments) == "team_b"


def test_a_sensor_of_a_dag_file_says_its_team(world: World) -> None:
    world.write("@task.sensor\ndef wait(): return False\nwait()")
    for team in TEAMS:
        registered = world.registered(world.sensor(), dag_run=SimpleNamespace(team_name=team))
        assert external_inputs.team_of(registered["arguments"]) == team


# pokes


def test_a_poke_has_the_connection_of_its_team(of_environment: None) -> None:
    a, b = pooled(Asks, "team_a"), pooled(Asks, "team_b")
    for _ in range(3):
        assert (a.poke({}), b.poke({})) == (True, False)


def test_a_poke_of_no_team_does_not_find_that_of_one(of_environment: None) -> None:
    with pytest.raises(HandBack, match="needs the Connection lake, which the pool does not find"):
        pooled(Asks, None).poke({})


def test_the_state_of_a_connection_is_kept_for_each_team(of_environment: None) -> None:
    adapt(Asks)
    states = {team: _Connections().state_of("lake", team, 30.0) for team in TEAMS}
    assert states[None] is None
    assert len(set(states.values())) == 3
    kept = _Connections()
    assert [kept.state_of("lake", team, 30.0) for team in TEAMS] == list(states.values())


def test_a_thread_of_a_poke_asks_for_the_team_if_it_is_clear(
    of_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Asks, "in_a_thread", True)
    sensor = pooled(Asks, "team_a")
    assert sensor.poke({}) is True
    begun, over = threading.Event(), threading.Event()

    def other() -> None:
        with Denials(team="team_b"):
            begun.set()
            over.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    try:
        assert begun.wait(60)
        with pytest.raises(InfraFailure, match="while pokes of several teams are under way"):
            sensor.poke({})
    finally:
        over.set()
        thread.join()
    assert sensor.poke({}) is True


def test_teams_share_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for letter in "ab":
        (tmp_path / letter).mkdir()
        connection = json.dumps({"conn_type": "fs", "extra": {"path": str(tmp_path / letter)}})
        monkeypatch.setenv(f"AIRFLOW_CONN__TEAM_{letter.upper()}___BELOW", connection)
    (tmp_path / "a" / "here0").touch()
    call = files.shared_call(FileSensor, adapt(FileSensor))
    assert call is not None
    answers = {}
    for team in ("team_a", "team_b"):
        contexts = [
            condition(FileSensor, team, filepath=f"here{number}", fs_conn_id="below").poke_context
            for number in range(9)
        ]
        questions = [call.question(context) for context in contexts]
        assert None not in questions
        (kin,) = {question.kin for question in questions if question is not None}
        answers[kin] = list(call.ask(kin, [question.asked for question in questions if question is not None]))
    assert list(answers.values()) == [[True] + [False] * 8, [False] * 9]


def test_a_variable_is_that_of_the_team(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_VAR__TEAM_A___DAY", "monday")
    adapt(Asks)
    with Denials(team="team_a"):
        assert Variable.get("day") == "monday"


def test_a_dag_file_is_loaded_and_poked_for_its_team(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str | None, str | None]] = []

    def look_up(message: Any, team: str | None) -> Any:
        asked.append((secrets_backends.lookup_name(message), team))
        return VariableResult(key=message.key, value="monday")

    monkeypatch.setattr(secrets_backends, "look_up", look_up)
    world.write("""
    early = Variable.get("early")
    @task.sensor
    def wait():
        return Variable.get("late") == "friday"
    wait()
    """)
    with pytest.MonkeyPatch.context() as on_worker:
        for name in ("EARLY", "LATE"):
            on_worker.setenv(f"AIRFLOW_VAR_{name}", "monday")
        process_start.remember()
        registered = world.registered(world.sensor(), dag_run=SimpleNamespace(team_name="team_b"))
    words = registered["arguments"]["doc"].split()
    registered["arguments"]["doc"] = " ".join(word for word in words if not word.startswith("(environment)"))
    report = Group(registered).poke()
    assert report.outcome is Outcome.NOT_LANDED, report
    assert set(asked) == {("Variable early", "team_b"), ("Variable late", "team_b")}
