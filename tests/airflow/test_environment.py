"""The environment of a task's process, which the task itself has changed: the pool's process has it otherwise."""

import os
import re
import string
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from inspect import getsource
from typing import Any

import pytest

pytest.importorskip("airflow.providers.standard")

from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk import BaseHook, Variable
from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.sdk.execution_time import supervisor

from harness.until import PATIENCE
from sensorpool import Settings
from sensorpool.airflow.compat import features, secrets_backends, task_runtime
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.pool.adapters.job import EXTERNAL_ID
from sensorpool.airflow.pool.adapters.sensor import adapt
from sensorpool.airflow.proof.arguments import rebuild
from sensorpool.airflow.proof.watch import environment_reads, process_start, watched_environment
from sensorpool.airflow.task import deferral, patch, poolable
from sensorpool.airflow.task.first_poke import FirstPoke
from sensorpool.airflow.task.resumable_job import _check_status
from sensorpool.errors import HandBack
from tests.airflow.needs import needs
from tests.airflow.running import context_of, in_dag
from tests.airflow.test_resumable_job import Submits

NAME = "OF_THE_TEAM"
VALUE = "never-in-a-log"
READ = f"its poke reads {NAME} from the environment, which its task has changed"


def asked(name: str = NAME) -> Any:
    """Ask for a name that no code of the sensor's class has in it."""
    return os.environ.get(name)


class Asks(BaseSensorOperator):
    """Asks what the test says."""

    def __init__(self, *, path: str = "p", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.path = path
        globals()["_acts"]["built"]()

    def poke(self, context: Any) -> bool:
        """Ask."""
        return bool(globals()["_acts"]["poke"]()) and False


class Declares(Asks):
    """Says what its answer depends on."""

    poke_context_fields = ("path",)


class NamesIt(Asks):
    """Asks only at a later poke."""

    def poke(self, context: Any) -> bool:
        """Ask, some day."""
        return self.path == "later" and "OF_THE_TEAM" in os.environ


class LooksUp(Asks):
    """Looks up only at a later poke."""

    def poke(self, context: Any) -> bool:
        """Look up, some day."""
        return self.path == "later" and bool(Variable.get("partner_day"))


def nothing() -> None:
    """Do nothing."""


@pytest.fixture(autouse=True)
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stand in for a task's process: whatever a test sets afterwards is the task's doing."""
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    monkeypatch.setitem(globals(), "_acts", {"poke": nothing, "built": nothing})
    for name in [name for name in os.environ if name.startswith(("AIRFLOW_CTX_", NAME)) or name.endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TAKEN_AWAY", VALUE)
    monkeypatch.setenv("http_proxy", VALUE)
    process_start.remember()
    monkeypatch.setenv("AIRFLOW_CTX_DAG_ID", "dag")
    monkeypatch.setenv("AIRFLOW_CTX_DAG_OWNER", "me")
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "dag")
    for name in task_runtime.SET_FOR_TASKS:
        monkeypatch.setenv(name, "airflow-db-not-allowed:///")
    monkeypatch.setattr(watched_environment, "_watches", ())
    yield
    os.environ.__class__ = os.environb.__class__ = os._Environ


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why slots were kept."""
    reasons: list[str] = []
    monkeypatch.setattr(deferral, "report_native", lambda _, error: reasons.append(str(error)))
    return reasons


def acts(poke: Callable[[], Any] = nothing, built: Callable[[], Any] = nothing) -> None:
    globals()["_acts"].update(poke=poke, built=built)


def first_poke(cls: Any = Asks, **arguments: Any) -> FirstPoke:
    def native(sensor: Any, context: Any) -> None:
        sensor.poke(context)
        sensor._get_next_poke_interval(None, lambda: 0.0, 1)

    sensor = in_dag(cls, **arguments)
    first = FirstPoke(sensor, native, 10.0, list)
    first.poke(context_of(sensor))
    return first


def condition(cls: Any = Asks, **arguments: Any) -> Any:
    sensor = in_dag(cls, **arguments)
    path = f"{cls.__module__}.{cls.__qualname__}"
    settings = Settings(sensors_enabled=[path], _env_file=None)  # type: ignore[call-arg]
    return poolable.condition_of(sensor, context_of(sensor), settings, AirflowSettings())


# what a poke asks for

ASKS: dict[str, Callable[[], Any]] = {
    "item": lambda: os.environ[NAME],
    "get": asked,
    "getenv": lambda: os.getenv(NAME),
    "in": lambda: NAME in os.environ,
    "keys": lambda: NAME in os.environ.keys(),  # noqa: SIM118
    "prefix": lambda: [name for name in os.environ if name.startswith("OF_THE_")],
    "items": lambda: [value for name, value in os.environ.items() if "THE_TEAM" in name],
    "copy": lambda: os.environ.copy()[NAME],
    "dict": lambda: {**os.environ}.get(NAME),
    "template": lambda: string.Template(f"${NAME}/x").substitute(os.environ),
    "expandvars": lambda: os.path.expandvars(f"${NAME}/x"),
    "bytes": lambda: os.environb[NAME.encode()],
    "bytes of a path": lambda: os.path.expandvars(f"${NAME}/x".encode()),
}


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
@pytest.mark.parametrize("cls", [Asks, Declares])
def test_a_poke_that_reads_what_its_task_has_set_stays_on_its_worker(
    monkeypatch: pytest.MonkeyPatch, kept: list[str], ask: Callable[[], Any], cls: Any
) -> None:
    acts(poke=ask)
    monkeypatch.setenv(NAME, VALUE)
    first_poke(cls)
    assert kept == [READ]


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_what_the_process_started_with_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch, kept: list[str], ask: Callable[[], Any]
) -> None:
    acts(poke=ask)
    monkeypatch.setenv(NAME, VALUE)
    process_start.remember()
    monkeypatch.setenv("AIRFLOW_CTX_TASK_ID", "another")
    first_poke()
    assert kept == []


@pytest.mark.parametrize(
    "ask",
    [
        nothing,
        lambda: os.environ["PATH"],
        lambda: dict(os.environ).get("PATH"),
        urllib.request.getproxies_environment,
        lambda: [name for name in os.environ if name[-6:-5] == "_"],
        lambda: [name for name in os.environ if name.startswith("AIRFLOW__")],
        lambda: sorted(os.environ),
    ],
    ids=["nothing", "PATH", "copy", "proxies", "letter", "options", "sorted"],
)
def test_what_nothing_asks_for_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch, kept: list[str], ask: Callable[[], Any]
) -> None:
    """Airflow's own names, too, and what a DAG file sets for others."""
    acts(poke=ask)
    monkeypatch.setenv(NAME, VALUE)
    first_poke()
    first_poke(Declares)
    assert kept == []
    assert condition()


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("TAKEN_AWAY", lambda: asked("TAKEN_AWAY")),
        ("TAKEN_AWAY", lambda: dict(os.environ).get("TAKEN_AWAY")),
        ("http_proxy", urllib.request.getproxies_environment),
    ],
    ids=["get", "copy", "proxies"],
)
def test_what_its_task_has_taken_away_counts(
    monkeypatch: pytest.MonkeyPatch, kept: list[str], name: str, ask: Callable[[], Any]
) -> None:
    acts(poke=ask)
    monkeypatch.delenv(name)
    first_poke()
    assert kept == [f"its poke reads {name} from the environment, which its task has changed"]


def test_a_proxy_that_its_task_has_set_counts(monkeypatch: pytest.MonkeyPatch, kept: list[str]) -> None:
    acts(poke=urllib.request.getproxies)
    monkeypatch.setenv("https_proxy", VALUE)
    first_poke()
    assert kept == ["its poke reads https_proxy from the environment, which its task has changed"]


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("AIRFLOW_VAR_PARTNER_DAY", lambda: Variable.get("partner_day", default=None)),
        ("AIRFLOW_CONN_PARTNER", lambda: BaseHook.get_connection("partner")),
    ],
    ids=["variable", "connection"],
)
def test_variables_and_connections_that_its_task_has_set_keep_it(
    monkeypatch: pytest.MonkeyPatch, kept: list[str], name: str, ask: Callable[[], Any]
) -> None:
    acts(poke=ask)
    monkeypatch.setenv(name, f"http://{VALUE}")
    first_poke()
    assert kept == [f"its poke reads {name} from the environment, which its task has changed"]
    kept.clear()
    process_start.remember()
    first_poke()
    assert kept == []


def test_a_providers_sensor_whose_connection_its_task_has_set_stays(
    monkeypatch: pytest.MonkeyPatch, kept: list[str]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_FS_TEAM", '{"conn_type": "fs"}')
    with pytest.raises(NotPoolable, match="its code names AIRFLOW_CONN_FS_TEAM"):
        condition(FileSensor, filepath="/no/such", fs_conn_id="fs_team")
    process_start.remember()
    assert condition(FileSensor, filepath="/no/such", fs_conn_id="fs_team").poke_context


def test_what_airflow_sets_for_a_task_counts_if_it_is_read(kept: list[str]) -> None:
    name = min(task_runtime.SET_FOR_TASKS)
    acts(poke=lambda: os.environ[name])
    first_poke()
    assert kept == [f"its poke reads {name} from the environment, which its task has changed"]
    source = getsource(supervisor.block_orm_access)
    assert set(re.findall(r'os\.environ\["(\w+)"\]', source)) == task_runtime.SET_FOR_TASKS


# what a poke may ask for later


@pytest.mark.parametrize(("cls", "name"), [(NamesIt, NAME), (LooksUp, "AIRFLOW_VAR_PARTNER_DAY")])
def test_what_its_code_names_counts_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch, kept: list[str], cls: Any, name: str
) -> None:
    assert condition(cls).poke_context
    monkeypatch.setenv(name, VALUE)
    why = f"its code names {name}, which its task has changed in the environment"
    with pytest.raises(NotPoolable) as raised:
        condition(cls)
    assert (str(raised.value), raised.value.kind) == (why, "needs_worker")
    first_poke(cls)
    assert kept == [why]


# the constructor


@pytest.mark.parametrize("cls", [Asks, Declares])
def test_a_constructor_that_reads_what_its_task_has_changed_stays(monkeypatch: pytest.MonkeyPatch, cls: Any) -> None:
    acts(built=asked)
    assert condition(cls).poke_context
    monkeypatch.setenv(NAME, VALUE)
    with pytest.raises(NotPoolable) as raised:
        condition(cls)
    why = f"its constructor reads {NAME} from the environment, which its task has changed"
    assert (str(raised.value), raised.value.kind) == (why, "needs_worker")


# reads that cannot be seen


@pytest.mark.parametrize("put", [os.environ.__setitem__, os.putenv], ids=["environ", "putenv"])
@pytest.mark.parametrize("cls", [Asks, FileSensor])
def test_another_time_zone_keeps_what_may_read_local_time(
    monkeypatch: pytest.MonkeyPatch, put: Callable[[str, str], None], cls: Any
) -> None:
    arguments = {"filepath": "/no/such"} if cls is FileSensor else {}
    monkeypatch.setenv("TZ", "UTC")
    process_start.remember()
    try:
        put("TZ", "Asia/Tokyo")
        time.tzset()
        if cls is FileSensor:
            assert condition(cls, **arguments).poke_context
            return
        with pytest.raises(NotPoolable, match="its task has changed TZ in the environment, and with it the local time"):
            condition(cls, **arguments)
    finally:
        os.environ["TZ"] = "UTC"
        time.tzset()


@pytest.mark.parametrize("put", [os.environ.__setitem__, os.putenv], ids=["environ", "putenv"])
def test_what_a_library_in_c_reads_counts_where_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch, kept: list[str], put: Callable[[str, str], None]
) -> None:
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    for module in ("oracledb", "cx_Oracle"):
        sys.modules.pop(module, None)
    monkeypatch.setenv("TNS_ADMIN", "/of/worker")
    process_start.remember()
    try:
        put("TNS_ADMIN", "/of/team")
        assert condition().poke_context
        acts(poke=lambda: sys.modules.update(oracledb=os))  # a hook imports it when it is first needed
        first_poke()
        assert kept == ["its task has changed TNS_ADMIN in the environment, which libraries in C read unseen"]
    finally:
        os.environ["TNS_ADMIN"] = "/of/worker"


# what the environment of workers has, and that of the pool has not


LOOK_UPS: dict[str, tuple[str, str, Callable[[], Any]]] = {
    "variable": ("AIRFLOW_VAR_PARTNER_DAY", "Variable partner_day", lambda: Variable.get("partner_day", default="")),
    "connection": ("AIRFLOW_CONN_PARTNER", "Connection partner", lambda: BaseHook.get_connection("partner")),
}


@pytest.mark.parametrize("how", LOOK_UPS)
def test_what_its_worker_found_in_the_environment_is_not_looked_for_elsewhere(
    monkeypatch: pytest.MonkeyPatch, kept: list[str], how: str
) -> None:
    name, what, ask = LOOK_UPS[how]
    acts(poke=ask)
    monkeypatch.setenv(name, f"http://{VALUE}")
    process_start.remember()
    first = first_poke()
    assert kept == []
    assert first.of_environment == {f"{what.split()[0]} {name.split('_', 2)[2]}"}
    told = rebuild.with_first_poke(Asks, rebuild.poke_context_of(in_dag(Asks)), first.missing, first.of_environment)
    assert VALUE not in str(told)
    assert name not in str(told)
    pooled = adapt(Asks)(**told)
    assert pooled.poke({}) is False
    monkeypatch.delenv(name)
    monkeypatch.setattr(secrets_backends, "look_up", lambda *_: pytest.fail("the database is asked"))
    with pytest.raises(HandBack, match=f"needs the {what}, which its worker has in its environment, and the pool has"):
        pooled.poke({})


# jobs


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (asked, f"reads {NAME} from the environment, which its task has changed"),
        (
            lambda: subprocess.run(["/bin/true"], check=True),
            f"starts a program, and its task has changed {NAME} in the environment",
        ),
    ],
    ids=["reads", "program"],
)
@needs(features.RESUMABLE_JOBS)
def test_a_job_whose_status_needs_what_its_task_has_changed_is_waited_for_on_the_worker(
    monkeypatch: pytest.MonkeyPatch, status: Callable[[], Any], why: str
) -> None:
    arguments = {"cluster": "c", EXTERNAL_ID: "job-7"}
    monkeypatch.setattr(Submits, "get_job_status", lambda *_: status() and "running")
    process_start.remember()  # pytest names its phase there
    assert _check_status(Submits, arguments)
    monkeypatch.setenv(NAME, VALUE)
    with pytest.raises(NotPoolable, match=f"the pool could not ask for its status: that {why}"):
        _check_status(Submits, arguments)


# the process


def test_a_forked_process_starts_with_what_it_finds() -> None:
    code = """
    import os, sys
    import sensorpool.airflow.policy
    from sensorpool.airflow.proof.watch import process_start
    assert "airflow" not in sys.modules
    os.environ["OF_WORKER"] = "a"
    assert process_start.changed() == {"OF_WORKER"}
    child = os.fork()
    if child == 0:
        assert process_start.changed() == process_start.changed_in_c() == frozenset()
        os.environ["OF_WORKER"], os.environ["OF_TASK"] = "b", ""
        os.putenv("IN_C", "c")
        del os.environ["HOME"]
        assert process_start.changed() == {"OF_WORKER", "OF_TASK", "HOME"}, process_start.changed()
        assert process_start.changed_in_c() == {"OF_WORKER", "OF_TASK", "HOME", "IN_C"}
        assert process_start.gone() == {"HOME"}
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    """
    environment = {**os.environ, "HOME": "/of/test"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60, env=environment)


def test_where_nothing_is_known_of_the_start_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, VALUE)
    process_start.forget()
    assert process_start.changed() == process_start.changed_in_c() == process_start.gone() == frozenset()
    assert environment_reads.reason_against(in_dag(NamesIt)) is None


# in the pool


def test_a_constructor_that_changes_the_environment_in_the_pool_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    context = rebuild.poke_context_of(in_dag(Asks))
    acts(built=lambda: os.environ.setdefault("OF_CONSTRUCTOR", "x"))
    with pytest.raises(HandBack, match="sets OF_CONSTRUCTOR in the environment"):
        adapt(Asks)(**context)
    assert "OF_CONSTRUCTOR" not in os.environ
    monkeypatch.setenv("OF_CONSTRUCTOR", "x")
    assert adapt(Asks)(**context).poke({}) is False


def test_watches_of_two_threads_leave_none_behind_in_any_order() -> None:
    """A triggerer builds sensors on several threads."""
    was, heard = type(os.environ), list[str]()
    one, other = (watched_environment.watching(lambda _: True, lambda _: True, (), heard.append) for _ in "ab")
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    os.environ.get("HOME")
    assert heard == ["HOME"]
    other.__exit__(None, None, None)
    os.environ.get("HOME")
    assert heard == ["HOME"]
    assert type(os.environ) is was


def test_a_read_goes_on_where_the_watch_ends_in_its_midst() -> None:
    """Triggers of others read the environment while this triggerer builds sensors."""
    with ExitStack() as watch:
        watch.enter_context(watched_environment.watching(lambda _: True, lambda _: True, (), lambda _: watch.close()))
        names = iter(os.environ)
        assert os.environ["PATH"]
        assert type(os.environ) is os._Environ, "the watch has ended meanwhile"
        assert os.environ.keys() == {*names}


def test_a_constructor_on_a_thread_is_heard_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A triggerer builds sensors on threads, while others read the environment."""
    monkeypatch.setenv(NAME, VALUE)
    meet, outcomes = threading.Barrier(2), list[object]()

    def built() -> None:
        meet.wait(PATIENCE)
        meet.wait(PATIENCE)

    def build(reads: Callable[[], object]) -> None:
        try:
            outcomes.append(environment_reads.build_checked(lambda: (built(), reads())))
        except NotPoolable as error:
            outcomes.append(str(error))

    for reads in (nothing, asked):
        builds = threading.Thread(target=build, args=(reads,))
        builds.start()
        meet.wait(PATIENCE)
        assert os.environ[NAME] == asked() == VALUE, "another thread reads it meanwhile"
        assert dict(os.environ)[NAME] == VALUE
        meet.wait(PATIENCE)
        builds.join(PATIENCE)
    assert outcomes == [(None, None), f"its constructor reads {NAME} from the environment, which its task has changed"]


def test_a_task_has_its_process_for_itself_with_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, VALUE)

    def reads_on_a_thread() -> None:
        reads = threading.Thread(target=asked)
        reads.start()
        reads.join(PATIENCE)

    with pytest.raises(NotPoolable, match=f"its constructor reads {NAME}"):
        environment_reads.build_checked(reads_on_a_thread)
