"""Sensors whose function or class is of a DAG file: the pool loads the file in a process of its bundle."""

import hashlib
import json
import os
import signal
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.providers.standard")

import pendulum
from airflow.dag_processing.bundles import base
from airflow.sdk.exceptions import AirflowSensorTimeout, TaskDeferred
from airflow.sdk.execution_time.comms import ConnectionResult, VariableResult
from sqlalchemy.exc import OperationalError

from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.airflow.compat import secrets_backends
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.pool import dag_files
from sensorpool.airflow.pool.dag_files.processes import Processes
from sensorpool.airflow.proof.arguments import dag_file
from sensorpool.airflow.proof.state import bundle_files
from sensorpool.airflow.proof.watch import process_start
from sensorpool.airflow.result import Landing
from sensorpool.airflow.task import patch, poolable
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Fact, Report
from sensorpool.poke.poker import Poker
from tests.airflow.dag_file_world import MOMENT, Group, World, settings
from tests.airflow.running import as_runner, pool_of_process

pytestmark = pytest.mark.processes

CLOSURE = """
    def made(name):
        @task.sensor
        def wait(day, ds, params, logical_date, absent=None):
            found = (HERE / name).exists()
            value = [day, ds, params, str(logical_date.add(days=1)), type(params).__name__]
            return PokeReturnValue(found, value if found else None)
        return wait
    made("arrived")("{{ ds }}")
"""

WAITS = """
        def __init__(self, *, name, **kwargs):
            super().__init__(**kwargs)
            self.name = name
        def poke(self, context):
            return (HERE / self.name).exists()
    Waits(task_id="wait", name="{{ ds }}")
"""  # the end of a class that begins before


def test_a_task_sensor_with_a_closure_lands_with_its_value(world: World, tmp_path: Path) -> None:
    world.write(CLOSURE)
    sensor = world.sensor(op_args=["rendered"])
    group = world.pooled(sensor)
    assert group.poke().outcome is Outcome.NOT_LANDED
    assert group.poke().outcome is Outcome.NOT_LANDED
    (tmp_path / "arrived").touch()
    assert group.value() == ["rendered", "2026-01-02", {"n": 1}, "2026-01-03 03:00:00+00:00", "dict"]


HELPED = """
    from acme_helper import is_there
    def ready(path, least=0, templates_dict=None):
        return is_there(path) and least < 2 and templates_dict["x"] == 1
    PythonSensor(task_id="wait", python_callable=ready, op_kwargs={"path": "PATH"}, templates_dict={"x": 1})
"""
HELPER = "import pathlib\ndef is_there(path): return pathlib.Path(path).exists()"


def test_a_function_that_uses_a_module_of_the_folder(world: World, tmp_path: Path) -> None:
    (world.folder / "acme_helper.py").write_text(HELPER)
    world.write(HELPED.replace("PATH", str(tmp_path / "arrived")))
    sensor = world.sensor()
    registered = world.registered(sensor)
    assert registered["files"] == ["acme_helper.py", "x.py"]
    group = Group(registered)
    assert group.poke().outcome is Outcome.NOT_LANDED
    (tmp_path / "arrived").touch()
    assert group.value() is None


def test_a_class_of_a_dag_file(world: World, tmp_path: Path) -> None:
    world.write("""
    class Waits(BaseSensorOperator):
        template_fields = ("name",)
        def __init__(self, *, name, least, **kwargs):
            super().__init__(**kwargs)
            self.name, self.least, self.seen = name, least, None
        def poke(self, context):
            found = [each for each in HERE.iterdir() if each.name.startswith(self.name)]
            if len(found) < self.least:
                return False
            self.seen = len(found)
            return PokeReturnValue(True, self.seen)
    Waits(task_id="wait", name="{{ ds }}", least=1)
    """)
    group = world.pooled(world.sensor(name="rendered"))
    assert group.poke().outcome is Outcome.NOT_LANDED
    (tmp_path / "rendered.csv").touch()
    report = group.poke()
    assert report.outcome is Outcome.LANDED
    landing = Landing.read(json.loads(str(report.xcom_value)))
    assert landing.value == 1
    assert json.loads(json.dumps(landing.attributes))["seen"], "the task that resumes gets what the poke has set"


def test_several_tasks_and_runs_of_one_class(world: World, tmp_path: Path) -> None:
    """The first one that is built seals the class, in the process that they share."""
    world.write(
        """
    def tell(context):
        pass
    class Waits(BaseSensorOperator):
        template_fields = ("name",)
        on_success_callback = staticmethod(tell)
        poke_interval = 7
    """
        + WAITS
    )
    groups = [world.pooled(world.sensor(name=name)) for name in ("one", "two", "three")]
    for _ in range(2):
        assert [group.poke().outcome for group in groups] == [Outcome.NOT_LANDED] * 3
    (tmp_path / "two").touch()
    reports = [group.poke() for group in groups]
    assert [(report.outcome, report.reason) for report in reports] == [
        (Outcome.NOT_LANDED, None),
        (Outcome.LANDED, None),
        (Outcome.NOT_LANDED, None),
    ]


def test_a_class_whose_code_is_in_an_attribute_that_is_watched(world: World, tmp_path: Path) -> None:
    """A lambda, or a function inside a class, has its place by that attribute."""
    world.write(
        """
    WAYS = {"far": HERE}
    class Waits(BaseSensorOperator):
        template_fields = ("name",)
        on_success_callback = lambda context: WAYS
        class on_retry_callback:
            reads = WAYS
    """
        + WAITS
    )
    groups = [world.pooled(world.sensor(name=name)) for name in ("one", "two", "three")]
    assert [(report.outcome, report.reason) for report in (group.poke() for group in groups)] == [
        (Outcome.NOT_LANDED, None)
    ] * 3
    (tmp_path / "three").touch()
    assert [group.poke().outcome for group in groups] == [Outcome.NOT_LANDED, Outcome.NOT_LANDED, Outcome.LANDED]


def test_two_tasks_of_equal_functions_are_two_conditions_and_two_runs_of_one_are_one(world: World) -> None:
    world.write("""
    @task.sensor
    def wait(day):
        return False
    wait("{{ ds }}")
    """)
    first, other = (world.registered(world.sensor(op_args=["same"]), ds=day) for day in ("2026-01-01", "2026-01-02"))
    assert first == other, "what the function does not take is no part of its condition"
    assert first != world.registered(world.sensor(op_args=["another"]))
    world.write("""
    @task.sensor
    def wait(ds):
        return False
    wait()
    """)
    one, two = (world.registered(world.sensor(), ds=day) for day in ("2026-01-01", "2026-01-02"))
    assert one != two


NATIVE = {
    "ti": ("def wait(ti): return False", "takes ti of the template context"),
    "all": ("def wait(**context): return False", r"takes the whole template context \(\*\*\)"),
    "asks": ("def wait(): return get_current_context()['ds'] == ''", "from the template context|get_current_context"),
    "stateful": ("def wait(params):\n    params['n'] += 1\n    return False", "changes params of its template context"),
    "global": ("def wait():\n    SEEN.append(1)\n    return False\nSEEN = []", "SEEN"),
    "late": ("def wait():\n    import acme_late\n    return False", "imports acme_late.py of its bundle's folder"),
}


@pytest.mark.parametrize("kind", NATIVE)
def test_what_keeps_the_slot(world: World, kind: str) -> None:
    body, why = NATIVE[kind]
    (world.folder / "acme_late.py").touch()
    world.write(f"@task.sensor\n{body}\nwait()")
    with pytest.raises(NotPoolable, match=why):
        world.registered(world.sensor())


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"params": {"n": {1, 2}}}, None),
        ({"params": {"n": MOMENT}}, "holds a DateTime"),
        ({"logical_date": pendulum.datetime(2026, 1, 1, tz="Europe/Berlin")}, "not in UTC"),
        ({"surprise": 1}, "a name of its own, surprise"),
    ],
)
def test_what_json_cannot_say_keeps_the_slot(world: World, more: dict[str, Any], why: str | None) -> None:
    world.write("""
    @task.sensor
    def wait(params, logical_date):
        return False
    wait()
    """)
    if why is None:
        assert world.registered(world.sensor(), **more)
        return
    with pytest.raises(NotPoolable, match=why):
        world.registered(world.sensor(), **more)


def test_more_that_keeps_the_slot(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("PythonSensor(task_id='wait', python_callable=functools.partial(print), op_args=[made := (lambda: 0)])")
    with pytest.raises(NotPoolable, match="python_callable is no plain function"):
        world.registered(world.sensor())
    world.write("@task.sensor\ndef wait(one): return False\nwait(lambda: 0)")
    with pytest.raises(NotPoolable, match="is a callable"):
        world.registered(world.sensor())
    world.write("@task.sensor\ndef wait(): return False\nwait()")
    sensor = world.sensor()
    mapped = world.context(sensor)
    mapped["ti"].map_index = 0
    with pytest.raises(NotPoolable, match="it is mapped"):
        poolable.condition_of(sensor, mapped, settings(), AirflowSettings.load())
    world.write("@task.sensor\ndef wait(): return not True\nwait()")
    with pytest.raises(NotPoolable, match=r"x\.py of its bundle has changed since its process started"):
        poolable.condition_of(sensor, world.context(sensor), settings(), AirflowSettings.load())


def test_it_is_off_unless_the_class_is_listed(world: World) -> None:
    world.write("@task.sensor\ndef wait(): return False\nwait()")
    sensor = world.sensor()
    path = f"{type(sensor).__module__}.{type(sensor).__qualname__}"
    for listed in (None, path, "sensorpool.*", "airflow.providers.*"):
        given = {} if listed is None else {"sensors_enabled": listed}
        with pytest.raises(NotPoolable, match=r"sensors_enabled does not list|defined in a DAG file"):
            poolable.condition_of(sensor, world.context(sensor), Settings.load(**given), AirflowSettings.load())
    context = world.registered(world.sensor())
    cache = Poker(Settings.load()).cache
    unit = cache.keep(DueGroup(1, 1, 1, 1, 1, 0, 0, None), dag_file.SENSOR, json.dumps(context))
    [report] = unit.poke()
    assert (report.outcome, "is not enabled" in str(report.reason)) == (Outcome.CANNOT_POKE, True)


# another code, another world


def test_a_changed_file_is_never_poked_for_those_that_wait_for_the_old_one(world: World, tmp_path: Path) -> None:
    body = "@task.sensor\ndef wait():\n    (HERE / 'ran').write_text('{}')\n    return False\nwait()"
    world.write(body.format("old"))
    old = world.pooled(world.sensor())
    assert old.poke().outcome is Outcome.NOT_LANDED
    [before] = dag_files.processes().running
    world.write(body.format("new"))
    assert old.poke().outcome is Outcome.NOT_LANDED
    assert (tmp_path / "ran").read_text() == "old", "its process has the code that was registered"
    before.began -= 60
    new = world.pooled(world.sensor())
    assert new.poke().outcome is Outcome.NOT_LANDED
    assert (tmp_path / "ran").read_text() == "new"
    [after] = dag_files.processes().running
    assert after.pid != before.pid
    (tmp_path / "ran").unlink()
    report = old.poke()
    assert (report.outcome, report.reason) == (
        Outcome.HAND_BACK,
        "HandBack: its DAG file has changed since it registered, or is another one in the pool",
    )
    assert not (tmp_path / "ran").exists()


def test_a_changed_module_of_the_folder_is_a_change(world: World, tmp_path: Path) -> None:
    (world.folder / "acme_helper.py").write_text(HELPER)
    world.write(HELPED.replace("PATH", str(tmp_path / "arrived")))
    registered = world.registered(world.sensor())
    (world.folder / "acme_helper.py").write_text(HELPER.replace("exists", "is_file"))
    world.age("acme_helper.py")
    report = Group(registered).poke()
    assert (report.outcome, "has changed since it registered" in str(report.reason)) == (Outcome.HAND_BACK, True)


def test_what_another_world_makes_of_the_file_is_handed_back(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The file is the same, and its closure, its arguments, its tasks are not."""
    bodies = {
        "closure": "def made(name):\n    @task.sensor\n    def wait(): return name == 'x'\n    wait()\nmade(CELL)",
        "default": "@task.sensor\ndef wait(name=CELL): return name == 'x'\nwait()",
        "global": "@task.sensor\ndef wait(): return globals and GIVEN == 'x'\nGIVEN = CELL\nwait()",
        "which": "PythonSensor(task_id='wait', python_callable=[lambda: False, lambda: 0][CELL == 'pool'])",
        "task": "@task.sensor(task_id=CELL)\ndef wait(): return False\nwait()",
        "argument": "class Waits(BaseSensorOperator):\n    def __init__(self, *, name, **more):\n"
        "        super().__init__(**more)\n        self.name = name\n    def poke(self, _): return self.name == 'x'\n"
        "Waits(task_id='wait', name=CELL)",
        "broken": "@task.sensor\ndef wait(): return False\nwait()\nif CELL == 'pool': raise ValueError('not here')",
    }
    found = {}
    for kind, body in bodies.items():
        world.write(body.replace("CELL", "(HERE / 'cell').read_text()"), f"{kind}.py")
        (tmp_path / "cell").write_text("worker")
        registered = world.registered(world.sensor(f"{kind}.py"))
        same = Group(registered).poke() if kind == "closure" else None
        assert same is None or same.outcome is Outcome.NOT_LANDED
        for process in dag_files.processes().running:
            process.retire()
        (tmp_path / "cell").write_text("pool")
        report = Group(registered).poke()
        found[kind] = report.outcome
    assert found == dict.fromkeys(bodies, Outcome.HAND_BACK)


def test_a_bundle_or_file_that_is_missing_is_handed_back(world: World) -> None:
    world.write("@task.sensor\ndef wait(): return False\nwait()")
    registered = world.registered(world.sensor())
    for change, why in [
        ({"bundle": "theirs"}, "theirs"),
        ({"path": "gone.py"}, r"gone.py is not in the bundle"),
        ({"dag_id": "other"}, "no task wait of the DAG other"),
        ({"module": "unusual_prefix_0_x"}, "lies in another folder"),
        ({"class": "a.B"}, "another class"),
    ]:
        report = Group(registered | change).poke()
        assert report.outcome is Outcome.HAND_BACK, report
        assert why in str(report.reason)


def test_no_registration_has_a_file_run_or_written_outside_of_the_bundle(world: World, tmp_path: Path) -> None:
    """Whoever may register, or write into the database, may name any bundle, version and path."""
    world.write("@task.sensor\ndef wait(): return False\nwait()")
    registered = world.registered(world.sensor())
    victim, ran = tmp_path / "victim", tmp_path / "ran"
    victim.write_text("mine")
    outside = tmp_path / "outside.py"
    outside.write_text(f"import pathlib\npathlib.Path({str(ran)!r}).touch()")
    tracking = base.get_bundle_tracking_dir("ours")
    tracking.mkdir(parents=True, exist_ok=True)
    for change, why in [
        ({"path": str(outside)}, "the path of its DAG file"),
        ({"path": "../outside.py"}, "the path of its DAG file"),
        ({"path": ["x.py"]}, "the path of its DAG file"),
        ({"version": os.path.relpath(victim, tracking)}, "no plain name"),
        ({"version": str(victim)}, "no plain name"),
        ({"version": ".."}, "no plain name"),
        ({"bundle": os.path.relpath(tmp_path, tracking.parent), "version": "victim"}, "is not configured"),
    ]:
        report = Group(registered | change).poke()
        assert report.outcome is Outcome.HAND_BACK, report
        assert why in str(report.reason)
        assert (victim.read_text(), ran.exists()) == ("mine", False), change


def test_a_file_of_another_folder_is_no_part_of_a_version(world: World, tmp_path: Path) -> None:
    """A digest would tell whether a guess of its content is right."""
    world.write("@task.sensor\ndef wait(): return False\nwait()")
    registered = world.registered(world.sensor())
    (tmp_path / "secret").write_text("1234")
    files = [*registered[dag_file.FILES], "../secret"]
    digest = bundle_files.digest_of(
        {path: hashlib.sha256((world.folder / path).read_bytes()).hexdigest() for path in files}
    )
    report = Group(registered | {dag_file.FILES: files, dag_file.DIGEST: digest}).poke()
    assert report.outcome is Outcome.HAND_BACK
    assert "is another one in the pool" in str(report.reason)


# what the process is given


def test_the_process_has_no_key_to_airflow_and_asks_its_parent(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world.write("""
    @task.sensor
    def wait():
        found = BaseHook.get_connection("lake")
        from airflow import settings
        said = ""
        for ask in (lambda: settings.Session().execute("SELECT 1"), lambda: settings.engine.connect()):
            try:
                ask()
            except BaseException as error:
                said += repr(error)
        (HERE / "seen").write_text(repr([dict(os.environ), found.host, Variable.get("day"), said]))
        if (HERE / "fail").exists():
            raise ValueError(f"no entry with {found.password}")
        return False
    wait()
    """)
    secrets = {
        "AIRFLOW__CORE__FERNET_KEY": "fernet-key-of-the-pool",
        "AIRFLOW__CELERY__BROKER_URL": "redis://:broker-secret@nowhere/0",
        "AIRFLOW__API_AUTH__JWT_SECRET": "jwt-secret-of-the-pool",
        "SENSORPOOL_DATABASE_URL": "postgresql://u:pool-secret@nowhere/x",
        "AIRFLOW__SENSORPOOL__REDIS_URL": "redis://:redis-secret@nowhere/0",
        "SENSORPOOL_CONN_LAKE": "http://u:conn-secret@nowhere",
    }
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    asked: list[dict[str, Any]] = []

    def look_up(message: Any, team: str | None) -> Any:
        asked.append(secrets_backends.as_question(message, team))
        if "variable" in asked[-1]:
            return VariableResult(key=message.key, value="monday")
        fields = dict.fromkeys(("schema", "login", "port", "extra"))
        return ConnectionResult(conn_id="lake", conn_type="http", host="lake.example", password="hunter2222", **fields)

    monkeypatch.setattr(secrets_backends, "look_up", look_up)
    with pytest.MonkeyPatch.context() as on_worker:
        on_worker.setenv("AIRFLOW_CONN_LAKE", "http://u:hunter2222@lake.example")
        on_worker.setenv("AIRFLOW_VAR_DAY", "monday")
        process_start.remember()
        registered = world.registered(world.sensor())
    doc = registered["arguments"]["doc"]
    assert doc, doc
    registered["arguments"]["doc"] = " ".join(word for word in doc.split() if not word.startswith("(environment)"))
    group = Group(registered)
    report = group.poke()
    assert report.outcome is Outcome.NOT_LANDED, report
    assert {"connection": "lake", "team": None} in asked
    assert {"variable": "day", "team": None} in asked
    seen = (tmp_path / "seen").read_text()
    assert "lake.example" in seen
    assert "monday" in seen
    assert not [value for value in secrets.values() if value in seen]
    assert "not allowed" in seen.lower() or "disabled" in seen.lower()
    (tmp_path / "fail").touch()
    report = group.poke()
    assert (report.outcome, str(report.reason).startswith("ValueError: no entry with")) == (Outcome.POKE_ERROR, True)
    assert "hunter2222" not in str(report.reason)


def test_a_lookup_that_nobody_can_answer_now_is_no_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("@task.sensor\ndef wait(): return Variable.get('day') == 'friday'\nwait()")

    def look_up(*_: Any) -> Any:
        raise OperationalError("SELECT 1", {}, Exception("connection refused"))

    monkeypatch.setattr(secrets_backends, "look_up", look_up)
    monkeypatch.setenv("AIRFLOW_VAR_DAY", "monday")
    process_start.remember()
    registered = world.registered(world.sensor())
    registered["arguments"]["doc"] = ""
    monkeypatch.delenv("AIRFLOW_VAR_DAY")
    report = Group(registered | {"arguments": {**registered["arguments"]}}).poke()
    assert report.outcome in (Outcome.INFRA_FAILURE, Outcome.HAND_BACK), report


# faults


BEHAVES = """
    @task.sensor
    def wait(name):
        told = HERE / name
        said = told.read_text() if told.exists() else ""
        if said == "hang":
            (HERE / "begun").touch()
            time.sleep(600)
        if said == "die":
            os.kill(os.getpid(), signal.SIGSEGV)
            time.sleep(600)
        if said == "error":
            raise KeyError("no such key")
        return said == "landed"
    wait("a")
"""


def test_errors_hangs_and_deaths(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write(BEHAVES)
    bad, good = (world.pooled(world.sensor(op_args=[name])) for name in "ab")
    assert [group.poke().outcome for group in (bad, good)] == [Outcome.NOT_LANDED] * 2
    (tmp_path / "a").write_text("error")
    report = bad.poke()
    assert (report.outcome, report.reason) == (Outcome.POKE_ERROR, "KeyError: 'no such key'")
    [process] = dag_files.processes().running
    (tmp_path / "a").write_text("die")
    report = bad.poke()
    assert report.outcome is Outcome.HAND_BACK
    assert "signal 11" in str(report.reason) or "SIGSEGV" in str(report.reason)
    assert good.poke().outcome is Outcome.NOT_LANDED
    [another] = dag_files.processes().running
    assert another.pid != process.pid, "the fault has struck"


def test_of_several_pokes_that_a_process_died_with_one_is_to_blame(world: World, tmp_path: Path) -> None:
    world.write("""
    @task.sensor
    def wait(name):
        if (HERE / "bad").exists():
            (HERE / f"begun{name}").touch()
            while name != "bad" and len(list(HERE.glob("begun*"))) < 4:
                time.sleep(0.05)
            time.sleep(0.5)
            if name == "bad":
                os.abort()
        return False
    wait("x")
    """)
    groups = [world.pooled(world.sensor(op_args=[name])) for name in ("bad", "a", "b", "c")]
    assert [group.poke().outcome for group in groups] == [Outcome.NOT_LANDED] * 4
    (tmp_path / "bad").touch()
    ended: dict[int, list[Outcome]] = {number: [] for number in range(4)}

    def poke(number: int) -> None:
        ended[number].append(groups[number].poke().outcome)

    for _ in range(4):
        threads = [threading.Thread(target=poke, args=(n,)) for n in range(4) if Outcome.HAND_BACK not in ended[n]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert Outcome.HAND_BACK in ended[0]
    assert not [number for number in (1, 2, 3) if Outcome.HAND_BACK in ended[number]], ended
    assert all(Outcome.NOT_LANDED in ended[number] for number in (1, 2, 3)), ended


def test_a_hanging_poke_costs_itself_and_no_other(world: World, tmp_path: Path) -> None:
    of_pool: Any = dag_files.processes()
    of_pool._settings = Settings.load(sensors_enabled=dag_file.SENSOR, poke_timeout=8.0)
    world.write(BEHAVES)
    bad, good = (world.pooled(world.sensor(op_args=[name])) for name in "ab")
    until("the file is loaded", lambda: bad.poke().outcome is Outcome.NOT_LANDED)
    (tmp_path / "a").write_text("hang")
    reports: list[Report] = []
    thread = threading.Thread(target=lambda: reports.append(bad.poke()))
    thread.start()
    until("the poke has begun", (tmp_path / "begun").exists)
    for _ in range(3):
        assert good.poke().outcome is Outcome.NOT_LANDED
    assert not reports, "it still hangs"
    thread.join(60)
    assert [report.outcome for report in reports] == [Outcome.POKE_TIMEOUT]
    assert good.poke().outcome is Outcome.NOT_LANDED


def test_a_process_that_is_killed_is_replaced_and_nobody_is_to_blame(world: World, tmp_path: Path) -> None:
    world.write(BEHAVES)
    one, other = (world.pooled(world.sensor(op_args=[name])) for name in "ab")
    assert one.poke().outcome is Outcome.NOT_LANDED
    (tmp_path / "a").write_text("hang")
    reports: list[Report] = []
    thread = threading.Thread(target=lambda: reports.append(one.poke()))
    thread.start()
    [process] = dag_files.processes().running
    until("the poke has begun", (tmp_path / "begun").exists)
    os.kill(process.pid or 0, signal.SIGKILL)
    thread.join(60)
    assert [report.outcome for report in reports] == [Outcome.INFRA_FAILURE]
    (tmp_path / "a").unlink()
    assert one.poke().outcome is other.poke().outcome is Outcome.NOT_LANDED


def test_processes_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("@task.sensor\ndef wait(): return False\nwait()")
    registered = world.registered(world.sensor())
    few = Processes(settings(), 1)
    monkeypatch.setattr(dag_files, "processes", lambda: few)
    group = Group(registered)
    assert group.poke().outcome is Outcome.NOT_LANDED
    [first] = few.running
    report = Group(registered | {"version": "2"}).poke()
    assert (report.outcome, "dag_bundle_processes" in str(report.reason)) == (Outcome.HAND_BACK, True)
    until("it has nothing in hand", lambda: first.is_idle, patience=240)
    first.used -= 60
    report = Group(registered | {"version": "3"}).poke()
    assert "has no versions here" in str(report.reason)
    assert [process.bundle for process in few.running] == [("ours", "3", None)]
    until("its process has ended", lambda: not _lives(first.pid))
    for process in few.running:
        process.retire()


def _lives(pid: int | None) -> bool:
    return Path(f"/proc/{pid}").exists()


# the whole way


@pytest.fixture
def pool(postgres_database: str, redis_url: str, world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    with pool_of_process(monkeypatch, postgres_database, redis_url, dag_file.SENSOR) as made:
        yield made


@pytest.mark.parametrize("mode", ["poke", "reschedule"])
@pytest.mark.parametrize("is_edited", [False, True])
def test_a_task_waits_in_the_pool_and_ends_with_the_value(
    pool: Pool, world: World, tmp_path: Path, mode: str, is_edited: bool
) -> None:
    world.write(CLOSURE.replace("@task.sensor", f"@task.sensor(mode='{mode}', poke_interval=30)"))
    sensor = world.sensor(op_args=["rendered"])
    with pytest.raises(TaskDeferred) as deferred:
        as_runner(sensor, "execute", world.context(sensor))
    with pool.database.engine.connect() as connection:
        [row] = connection.exec_driver_sql("SELECT * FROM poke_group").mappings()
    assert row["op_classpath"] == dag_file.SENSOR
    group = Group(json.loads(row["poke_context"]))
    assert group.poke().outcome is Outcome.NOT_LANDED
    (tmp_path / "arrived").touch()
    report = group.poke()
    assert report.outcome is Outcome.LANDED
    pool.settler.settle([Fact(row["id"], 1, 10**13, report.outcome, xcom_value=report.xcom_value)])
    (tmp_path / "arrived").unlink()  # it is not asked again
    if is_edited:
        world.write(
            CLOSURE.replace("@task.sensor", f"@task.sensor(mode='{mode}', poke_interval=0.01, timeout=0)").replace(
                "days=1", "days=2"
            )
        )
    again, arguments = world.sensor(op_args=["rendered"]), deferred.value.kwargs
    event = {"value_of": deferred.value.trigger.serialize()[1]["instance_id"]}
    resumed = {**arguments, "event": event}
    if is_edited and mode == "reschedule":
        with pytest.raises(AirflowSensorTimeout):  # it pokes itself, by the new file
            as_runner(again, "resume_execution", patch.RESUME, resumed, world.context(again))
        return
    value = as_runner(again, "resume_execution", patch.RESUME, resumed, world.context(again))
    assert value == ["rendered", "2026-01-02", {"n": 1}, "2026-01-03 03:00:00+00:00", "dict"]


def test_a_bundle_with_versions_needs_no_digest(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two versions of a file wait side by side, each with its own code."""
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "acme_bundles.py").write_text(
        textwrap.dedent("""
        from pathlib import Path
        from airflow.dag_processing.bundles.base import BaseDagBundle

        class Versioned(BaseDagBundle):
            supports_versioning = True
            def __init__(self, *, root, **kwargs):
                super().__init__(**kwargs)
                self.root = root
            def get_current_version(self): return "2"
            def refresh(self): pass
            @property
            def path(self): return Path(self.root) / (self.version or "2")
        """)
    )
    monkeypatch.syspath_prepend(plugins)
    monkeypatch.setenv("PYTHONPATH", str(plugins))
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH", str(tmp_path / "storage"))
    monkeypatch.setattr(base, "STALE_BUNDLE_TRACKING_FOLDER", tmp_path / "storage" / "_tracking")
    bundle = {"name": "ours", "classpath": "acme_bundles.Versioned", "kwargs": {"root": str(world.folder)}}
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([bundle]))
    groups = {}
    for version in "12":
        (world.folder / version).mkdir()
        world.write(f"@task.sensor\ndef wait(): return PokeReturnValue((HERE / 'x').exists(), {version})\nwait()")
        (world.folder / "x.py").rename(world.folder / version / "x.py")
        registered = world.registered(world.sensor(version=version))
        assert (registered["version"], registered.get("files")) == (version, None)
        groups[version] = Group(registered)
    assert [group.poke().outcome for group in groups.values()] == [Outcome.NOT_LANDED] * 2
    (world.folder / "x").touch()
    assert [group.value() for group in groups.values()] == [1, 2]
    assert len(dag_files.processes().running) == 2
    assert Group(registered | {"version": "3"}).poke().outcome is Outcome.HAND_BACK


def test_a_link_that_leads_to_newer_code_is_a_change(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As git-sync does: the folder of the bundle is a link, and a new one takes its place."""
    body = "@task.sensor\ndef wait(): return PokeReturnValue((pathlib.Path(ROOT) / 'x').exists(), '{}')\nwait()"
    for revision in ("a", "b"):
        world.write(body.replace("ROOT", repr(str(tmp_path))).format(revision))
        (tmp_path / revision).mkdir()
        (world.folder / "x.py").rename(tmp_path / revision / "x.py")
    world.folder.rmdir()
    world.folder.symlink_to(tmp_path / "a")
    until("the link's time", lambda: os.lstat(world.folder).st_ctime < time.time() - 0.2)
    old = world.pooled(world.sensor())
    assert old.poke().outcome is Outcome.NOT_LANDED
    [process] = dag_files.processes().running
    stale = world.sensor()
    (tmp_path / "next").symlink_to(tmp_path / "b")
    (tmp_path / "next").rename(world.folder)
    with pytest.raises(NotPoolable, match="has changed since its process started"):
        world.condition(stale)
    until("the link's time", lambda: os.lstat(world.folder).st_ctime < time.time() - 0.2)
    process.began -= 60
    new = world.pooled(world.sensor())
    assert new.poke().outcome is Outcome.NOT_LANDED
    (tmp_path / "x").touch()
    assert new.value() == "b"
    assert old.poke().outcome is Outcome.HAND_BACK
