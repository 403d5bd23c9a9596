"""What a task asks its supervisor for: noted at the first poke on its worker, answered or refused in the pool."""

import asyncio
import contextlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("airflow")

from airflow.sdk import Asset, BaseHook, Connection, Variable
from airflow.sdk.execution_time import context as of_task
from airflow.sdk.execution_time import supervisor as airflows
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import (
    ConnectionResult,
    ErrorResponse,
    GetConnection,
    GetDagRunState,
    GetVariable,
    VariableResult,
)
from airflow.sdk.execution_time.context import get_previous_dagrun_success
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.sdk.execution_time.xcom import XCom
from airflow.sdk.log import mask_secret
from sqlalchemy.exc import OperationalError

from sensorpool import Settings
from sensorpool.airflow.compat import features, secrets_backends
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.pool.adapters import kept_operator as kept_module
from sensorpool.airflow.pool.adapters.job import EXTERNAL_ID
from sensorpool.airflow.pool.adapters.sensor import adapt
from sensorpool.airflow.proof.arguments import rebuild
from sensorpool.airflow.proof.watch import supervisor_requests
from sensorpool.airflow.task import deferral, patch
from sensorpool.airflow.task.first_poke import FirstPoke
from sensorpool.airflow.task.poolable import condition_of
from sensorpool.airflow.task.resumable_job import _check_status
from sensorpool.errors import HandBack, InfraFailure
from tests.airflow.needs import needs
from tests.airflow.running import Flag, PokesLog, as_runner, context_of, in_dag
from tests.airflow.test_resumable_job import Submits

FOUND = {"connection": "lake", "variable": "day"}


class Server:
    """Stands for the supervisor of a worker's task, and for what is in Airflow's database."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.connections = {"lake": "lake.example"}
        self.variables = {"day": "monday"}
        self.error: Exception | None = None

    def find(self, msg: Any, _: str | None = None) -> Any:
        """Answer as the server does; None, if there is no such thing."""
        if self.error is not None:
            raise self.error
        match msg:
            case GetConnection() if msg.conn_id in self.connections:
                return ConnectionResult(
                    **dict.fromkeys(("schema", "login", "password", "port", "extra")),
                    conn_id=msg.conn_id,
                    conn_type="http",
                    host=self.connections[msg.conn_id],
                )
            case GetVariable() if msg.key in self.variables:
                return VariableResult(key=msg.key, value=self.variables[msg.key])
        return None

    def send(self, msg: Any) -> Any:
        """Answer as the supervisor does."""
        self.sent.append(msg)
        if secrets_backends.lookup_name(msg) is not None:
            found = self.find(msg)
            return secrets_backends.not_found(msg) if found is None else found
        return ErrorResponse() if isinstance(msg, GetDagRunState) else None

    async def asend(self, msg: Any) -> Any:
        """Answer as the supervisor does."""
        return self.send(msg)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """What is in Airflow's database; the place of the supervisor is empty, as in a process of the pool's."""
    made = Server()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", None, raising=False)
    monkeypatch.setattr(airflows, "ensure_secrets_backend_loaded", airflows.ensure_secrets_backend_loaded)
    monkeypatch.setattr(secrets_backends, "look_up", made.find)
    monkeypatch.setattr(Flag, "answers", {})
    return made


@pytest.fixture
def worker(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The supervisor of a task on its worker."""
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", server)
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    return server


def poked_first(monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Any]) -> tuple[FirstPoke, list[str]]:
    """Poke a sensor on its worker; return the reasons why it stays there."""
    reasons: list[str] = []
    asked = PokesLog()
    monkeypatch.setattr(deferral, "report_native", lambda _, error: reasons.append(str(error)))
    monkeypatch.setattr(Flag, "poke", lambda *_: asked.append(ask()) or len(asked) > 1)
    sensor = in_dag(Flag, flag="x", poke_interval=0.01)
    first = FirstPoke(sensor, lambda one, context: as_runner(one, "execute", context), 10.0, list)
    first.poke(context_of(sensor))
    return first, reasons


def in_pool(monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Any], missing: Any = ()) -> Any:
    """Return what the pool pokes.

    :param missing: what was looked up at the first poke, and not found.
    """
    monkeypatch.setattr(Flag, "answers", {"x": lambda *_: ask()})
    poke_context = rebuild.with_first_poke(Flag, {"flag": "x", "doc": ""}, missing)
    return adapt(Flag)(**json.loads(json.dumps(poke_context)))


def swallowing(ask: Callable[[], Any]) -> Callable[[], bool]:
    """Make do without."""

    def swallow() -> bool:
        with contextlib.suppress(Exception):
            return bool(ask())
        return False

    return swallow


def in_a_thread(ask: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(ask).result()


def run_state() -> Any:
    return RuntimeTaskInstance.get_dagrun_state("producer", "run")


def asset_events() -> Any:
    if hasattr(of_task, "InletEventsAccessor"):
        return list(of_task.InletEventsAccessor(asset_name="a"))
    return list(of_task.InletEventsAccessors([Asset("a")])[Asset("a")])  # 3.1


ASKS: dict[str, Callable[[], Any]] = {
    "xcom": lambda: XCom.get_one(key="return_value", dag_id="producer", task_id="make", run_id="run"),
    "run state": run_state,
    "task count": lambda: RuntimeTaskInstance.get_ti_count("producer"),
    "previous": lambda: get_previous_dagrun_success(uuid4()),
    "events": asset_events,
    "set": lambda: Variable.set("seen", "yes"),
    "delete": lambda: Variable.delete("seen"),
    **({"keys": lambda: Variable.keys()} if hasattr(Variable, "keys") else {}),
    "thread": lambda: in_a_thread(run_state),
    "async": lambda: asyncio.run(task_runner.SUPERVISOR_COMMS.asend(GetDagRunState(dag_id="producer", run_id="run"))),
}


# on the worker


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_what_a_poke_asks_as_its_task_keeps_it_on_its_worker(
    worker: Server, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Any]
) -> None:
    _, reasons = poked_first(monkeypatch, swallowing(ask))
    assert len(reasons) == 1
    assert "asks Airflow as its task (" in reasons[0]
    assert worker.sent
    assert task_runner.SUPERVISOR_COMMS is worker


def test_connections_and_variables_keep_nothing(worker: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> None:
        assert BaseHook.get_connection("lake").host == "lake.example"
        assert Variable.get("day") == "monday"
        assert asyncio.run(Connection.async_get("lake")).host == "lake.example"
        mask_secret("a secret of the sensor")

    first, reasons = poked_first(monkeypatch, ask)
    assert reasons == []
    assert first.missing == set()


def test_what_a_poke_looks_up_and_does_not_find_is_told(worker: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> None:
        Variable.get("night", default=None)
        with contextlib.suppress(Exception):
            BaseHook.get_connection("sea")
        Variable.get("late", default=None)
        worker.variables["late"] = "here"
        Variable.get("late")

    first, reasons = poked_first(monkeypatch, ask)
    assert reasons == []
    assert first.missing == {"Variable night", "Connection sea"}


@needs(features.RESUMABLE_JOBS)
def test_a_job_whose_status_needs_its_task_is_waited_for_on_the_worker(
    worker: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = {"cluster": "c", EXTERNAL_ID: "job-7"}
    monkeypatch.setattr(Submits, "get_job_status", lambda *_: Variable.get("cluster", default="running"))
    assert _check_status(Submits, arguments) == (False, {"Variable cluster"})
    monkeypatch.setattr(Submits, "get_job_status", lambda *_: swallowing(run_state)() or "running")
    with pytest.raises(NotPoolable, match="GetDagRunState"):
        _check_status(Submits, arguments)


# in the pool


@pytest.mark.parametrize("catches", [True, False], ids=["catches", "does not"])
@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_what_a_poke_asks_as_its_task_only_later_goes_back(
    server: Server, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Any], catches: bool
) -> None:
    pooled = in_pool(monkeypatch, swallowing(ask) if catches else ask)
    with pytest.raises(HandBack, match="asks Airflow as its task"):
        pooled.poke({})


def test_a_refusal_in_a_thread_of_a_poke_is_held_against_it(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> bool:
        with ThreadPoolExecutor(1) as threads:
            threads.submit(run_state)  # its result is not read
        return False

    with pytest.raises(HandBack, match="asks Airflow as its task"):
        in_pool(monkeypatch, ask).poke({})
    pooled = in_pool(monkeypatch, lambda: False)
    assert pooled.poke({}) is False


def test_connections_and_variables_are_answered_in_the_pool(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> bool:
        mask_secret("a secret of the sensor")
        assert asyncio.run(Connection.async_get("lake")).host == "lake.example"
        assert in_a_thread(lambda: Variable.get("day")) == "monday"
        return bool(BaseHook.get_connection("lake").host == "lake.example" and Variable.get("day") == "monday")

    assert in_pool(monkeypatch, ask).poke({}) is True


LOOK_UPS: dict[str, Callable[[], Any]] = {
    "connection": lambda: BaseHook.get_connection("sea").host,
    "variable": lambda: Variable.get("night"),
    "default": lambda: Variable.get("night", default=""),
    "async": lambda: asyncio.run(Connection.async_get("sea")),
    "thread": lambda: in_a_thread(lambda: Variable.get("night")),
}


@pytest.mark.parametrize("ask", LOOK_UPS.values(), ids=LOOK_UPS)
def test_what_the_worker_found_and_the_pool_does_not_is_no_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Any]
) -> None:
    for asks in (ask, swallowing(ask)):
        with pytest.raises(HandBack, match=r"needs the (Connection sea|Variable night), which the pool does not find"):
            in_pool(monkeypatch, asks).poke({})


@pytest.mark.parametrize("ask", LOOK_UPS.values(), ids=LOOK_UPS)
def test_a_poke_that_waits_for_what_was_missing_goes_on(
    server: Server, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Any]
) -> None:
    pooled = in_pool(monkeypatch, swallowing(ask), {"Variable night", "Connection sea"})
    assert pooled.poke({}) is False
    server.variables["night"] = server.connections["sea"] = "here"
    assert pooled.poke({}) is True


def test_where_nobody_has_looked_before_only_a_failure_goes_back(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``first_poke = pool``: its worker may have it, or not."""
    assert in_pool(monkeypatch, swallowing(LOOK_UPS["variable"]), None).poke({}) is False
    with pytest.raises(HandBack, match="the pool does not find the Connection sea"):
        in_pool(monkeypatch, LOOK_UPS["connection"], None).poke({})


@pytest.mark.parametrize("ask", LOOK_UPS.values(), ids=LOOK_UPS)
def test_a_database_that_does_not_answer_is_an_outage(
    server: Server, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Any]
) -> None:
    pooled = in_pool(monkeypatch, swallowing(ask), {"Variable night", "Connection sea"})
    server.error = OperationalError("SELECT", {}, Exception("server closed the connection"))
    with pytest.raises(InfraFailure, match="server closed the connection"):
        pooled.poke({})
    server.error = None
    assert pooled.poke({}) is False


def test_a_connection_that_cannot_be_read_goes_back(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """With another fernet key, or without Airflow's database, it cannot be told what is there."""
    server.error = ValueError("not the key")
    with pytest.raises(HandBack, match="not the key"):
        in_pool(monkeypatch, swallowing(LOOK_UPS["connection"])).poke({})
    assert in_pool(monkeypatch, swallowing(LOOK_UPS["connection"]), {"Connection sea"}).poke({}) is False


def test_a_look_at_a_connection_that_is_kept_refuses_nothing(server: Server) -> None:
    seen = kept_module._Connections()
    supervisor_requests.stand_in()
    assert seen.state_of("sea", None, 0) is None
    known = seen.state_of("lake", None, 0)
    assert known is not None
    server.error = OperationalError("SELECT", {}, Exception("away"))
    assert seen.state_of("lake", None, 0) == known


class Configured(Flag):
    """Reads a Variable when it is constructed."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.level = Variable.get("level", default="low")


class Careful(Flag):
    """Asks as a task when it is constructed, if it can."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        swallowing(run_state)()


def test_a_constructor_may_miss_what_it_missed_on_its_worker(server: Server) -> None:
    assert adapt(Configured)(flag="x", doc=told(Configured(task_id="t", flag="x"))).poke({}) is False
    server.variables["level"] = "high"
    with pytest.raises(HandBack, match="its attribute level is another one"):
        adapt(Configured)(flag="x", doc=told_of_low(server)).poke({})


def told(sensor: Any) -> str:
    return str(rebuild.poke_context_of(sensor)["doc"])


def told_of_low(server: Server) -> str:
    level = server.variables.pop("level")
    try:
        return told(Configured(task_id="t", flag="x"))
    finally:
        server.variables["level"] = level


def test_a_constructor_that_asks_as_its_task_goes_back(server: Server) -> None:
    with pytest.raises(HandBack, match="asks Airflow as its task"):
        adapt(Careful)(flag="x")


def test_a_database_that_is_away_fails_no_constructor(server: Server) -> None:
    doc = told(Configured(task_id="t", flag="x"))
    server.error = OperationalError("SELECT", {}, Exception("away"))
    with pytest.raises(InfraFailure, match="away"):
        adapt(Configured)(flag="x", doc=doc)


class NoDoc(Flag):
    """Takes no more than it needs."""

    def __init__(self, *, task_id: str, flag: str) -> None:
        super().__init__(task_id=task_id, flag=flag)


def test_a_class_that_can_be_told_nothing_stays_on_its_worker_if_it_has_to() -> None:
    assert rebuild.with_first_poke(NoDoc, {"flag": "x"}, set()) == {"flag": "x"}
    assert rebuild.with_first_poke(NoDoc, {"flag": "x"}, None) == {"flag": "x"}
    with pytest.raises(NotPoolable, match="takes no `doc`"):
        rebuild.with_first_poke(NoDoc, {"flag": "x"}, {"Variable night"})


# the secrets backend of workers


@pytest.fixture
def workers_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of Connections that ``[workers] secrets_backend`` names, as everywhere in an installation."""
    path = tmp_path / "connections.json"
    path.write_text(json.dumps({"only_workers": "http://workers-only"}))
    (tmp_path / "variables.json").write_text(json.dumps({"only_workers": "v"}))
    kwargs = {"connections_file_path": str(path), "variables_file_path": str(tmp_path / "variables.json")}
    backend = "airflow.secrets.local_filesystem.LocalFilesystemBackend"
    monkeypatch.setenv("AIRFLOW__WORKERS__SECRETS_BACKEND", backend)
    monkeypatch.setenv("AIRFLOW__WORKERS__SECRETS_BACKEND_KWARGS", json.dumps(kwargs))
    from tests.airflow.versions import clear_secrets_backends_cache

    clear_secrets_backends_cache()
    with suppress(ImportError):  # 3.1 keeps none
        monkeypatch.setattr("airflow.sdk.configuration._secrets_backend_cache", {}, raising=False)
    return path


def test_what_only_the_backend_of_workers_has_is_found_in_the_pool(
    workers_backend: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask() -> bool:
        return (BaseHook.get_connection("only_workers").host, Variable.get("only_workers")) == ("workers-only", "v")

    assert in_pool(monkeypatch, ask).poke({}) is True


def test_a_backend_that_the_pool_cannot_load_hands_back(
    workers_backend: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__WORKERS__SECRETS_BACKEND", "not_installed.Backend")
    for ask in (LOOK_UPS["default"], swallowing(LOOK_UPS["connection"])):
        with pytest.raises(HandBack, match="needs a secrets backend that the pool lacks"):
            in_pool(monkeypatch, ask, {"Connection sea", "Variable night"}).poke({})


# from the worker to the pool


def test_what_was_missing_on_the_worker_is_carried_to_the_pool(worker: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = swallowing(LOOK_UPS["variable"])
    first, _ = poked_first(monkeypatch, ask)
    monkeypatch.undo()
    assert first.missing == {"Variable night"}
    path = "tests.airflow.running.Flag"
    sensor = in_dag(Flag, flag="x")
    condition = condition_of(sensor, context_of(sensor), Settings.load(sensors_enabled=path), AirflowSettings())
    told = rebuild.with_first_poke(Flag, condition.poke_context, first.missing)
    assert told != condition.poke_context
    assert rebuild.build_in_pool(Flag, told).flag == "x"
    assert "(missing)=" in told["doc"]
