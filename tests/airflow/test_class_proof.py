"""A company's sensor begins without a worker once a first poke on a worker has proved its class, and its code."""

import datetime as dt
import importlib
import json
import os
import socket
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow")

from airflow.sdk import DAG, get_parsing_context
from airflow.sdk.definitions.context import _AIRFLOW_PARSING_CONTEXT_TASK_ID as PARSED_FOR
from airflow.sdk.execution_time import task_runner
from sqlalchemy import text

from sensorpool import Pool, Settings
from sensorpool.airflow.compat import secrets_backends
from sensorpool.airflow.compat.exceptions import TaskDeferred
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.pool.adapters.sensor import adapt
from sensorpool.airflow.proof.arguments import rebuild
from sensorpool.airflow.proof.state import code_version
from sensorpool.airflow.proof.watch import process_start
from sensorpool.airflow.result import InstanceResult
from sensorpool.airflow.start import company_code, parse, proved_classes, registration
from sensorpool.airflow.start.blueprint import Blueprint
from sensorpool.airflow.task import deferral, patch
from sensorpool.errors import Unreachable
from sensorpool.model.states import Ending, State
from tests.airflow.running import as_runner, context_of

CONTEXT = {"ds": "2026-03-01", "run_id": "r", "logical_date": dt.datetime(2026, 3, 1, tzinfo=dt.UTC)}
FILES = {
    "__init__.py": "",
    "sensors.py": """
        import datetime, os
        from airflow.sdk import BaseHook, Variable
        from airflow.sdk.bases.sensor import BaseSensorOperator
        from proved_company.bases import Base
        from . import config

        class Partner(Base):
            template_fields = ("day", "parts")

            def __init__(self, *, day="", strict=False, parts=(), **kwargs):
                super().__init__(**kwargs)
                self.day, self.strict, self.parts = day, strict, parts

            def poke(self, context):
                if self.day == "reads the context":
                    return context["ds"] == 1
                if self.day == "misses a Variable":
                    return Variable.get("missing", default=1) == 2
                from proved_company import client
                return client.there(self.day, config.ROOT)
    """,
    "bases.py": """
        import tempfile
        from airflow.sdk.bases.sensor import BaseSensorOperator

        class Base(BaseSensorOperator):
            def __init__(self, **kwargs):
                super().__init__(**kwargs)
                self.folder = tempfile.gettempdir()
    """,
    "config.py": "ROOT = '/data'\n",
    "client.py": """
        def there(day, root):
            return False
    """,
    "unused.py": "A = 1\n",
}


class Company:
    """A package with a sensor, a file of DAGs, and a pool."""

    def __init__(self, folder: Path, pool: Pool) -> None:
        self.package = folder / "proved_company"
        self.package.mkdir()
        self.dag_file = folder / "dags.py"
        self.dag_file.write_text("one version")
        for name, source in FILES.items():
            self.write(name, source)
        self.pool = pool

    def write(self, name: str, source: str) -> None:
        """Write a module of the package."""
        (self.package / name).write_text(textwrap.dedent(source))

    def forget(self) -> None:
        """Begin as a new process does, that has imported nothing of the company."""
        for name in [name for name in sys.modules if name.partition(".")[0] == "proved_company"]:
            del sys.modules[name]
        importlib.invalidate_caches()
        proved_classes._read.clear()
        patch.proved_by_first_poke.clear()

    def edit(self, name: str, source: str) -> None:
        """Write another version of a module, and begin anew with that."""
        self.write(name, source)
        self.forget()

    @property
    def cls(self) -> Any:
        """The class, imported."""
        return importlib.import_module("proved_company.sensors").Partner

    def task(self, **arguments: Any) -> Any:
        """Return a task as the file of DAGs makes it."""
        with DAG("company", schedule=None) as dag:
            sensor = self.cls(task_id="wait", **{"day": "{{ ds }}", **arguments})
        dag.fileloc = str(self.dag_file)
        return sensor

    def blueprint(self, **arguments: Any) -> Blueprint:
        """Return the blueprint of a task."""
        sensor = self.task(**arguments)
        parse.give_blueprint(sensor)
        assert sensor.start_from_trigger
        return Blueprint.read(sensor.start_trigger_args.trigger_kwargs["blueprint"])

    def poke_on_worker(
        self, monkeypatch: pytest.MonkeyPatch, day: str = "2026-02-28", given: str = "{{ ds }}", **arguments: Any
    ) -> None:
        """Have a worker parse the file and poke a task for the first time."""
        with monkeypatch.context() as context:
            context.setenv(PARSED_FOR, "wait")
            assert get_parsing_context().task_id == "wait"
            sensor = self.task(day=given, **arguments)
            parse.give_blueprint(sensor)
            assert not sensor.start_from_trigger
        sensor.day = day  # rendered
        ti = context_of(sensor)
        ti["ti"].run_id = f"on worker {time.monotonic_ns()}"
        with pytest.raises(TaskDeferred):
            as_runner(sensor, "execute", ti)

    def proofs(self) -> int:
        """Return how many proofs the database has."""
        with self.pool.database.engine.begin() as connection:
            return int(connection.execute(text("SELECT count(*) FROM class_proof")).scalar_one())

    def begin(self, blueprint: Blueprint) -> Any:
        """Prepare a sensor as a triggerer does; return its registration."""
        key = deferral.key_of(context_of(self.task())["ti"])
        return registration.prepare(self.pool, blueprint, key, "x", CONTEXT).checked


def not_found(message: Any) -> Any:
    """Answer as a supervisor whose server has no Connections and Variables."""
    return secrets_backends.not_found(message) if secrets_backends.lookup_name(message) else None


@pytest.fixture
def company(
    tmp_path: Path, postgres_database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Company]:
    settings = AirflowSettings(enabled=True, start="scheduler")
    pool = Pool(
        Settings.load(database_url=postgres_database, redis_url=redis_url, sensors_enabled="proved_company.sensors.*")
    )
    monkeypatch.setattr(deferral, "pool", lambda: pool)
    monkeypatch.setattr(deferral, "airflow_settings", lambda: settings)
    monkeypatch.setattr(registration, "airflow_settings", lambda: settings)
    monkeypatch.setattr(patch, "is_enabled", lambda: True)
    monkeypatch.setattr(process_start, "loaded_at", lambda: time.time() + 60)  # the company's files are older
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=not_found), raising=False)
    patch.install()
    made = Company(tmp_path, pool)
    made.forget()
    yield made
    made.forget()
    pool.close()


def test_a_first_poke_on_a_worker_proves_the_class(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    blueprint = company.blueprint()
    with pytest.raises(NotPoolable, match="no first poke on a worker"):
        company.begin(blueprint)
    for day in ("2026-02-27", "2026-02-28"):
        company.poke_on_worker(monkeypatch, day)
    assert company.proofs() == 1
    company.forget()
    checked = company.begin(blueprint)
    (row,) = company.pool.register_checked([checked])
    by_worker = company.task()
    by_worker.day = CONTEXT["ds"]
    with pytest.raises(TaskDeferred):
        as_runner(by_worker, "execute", context_of(by_worker, run_id="by worker"))
    with company.pool.database.engine.begin() as connection:
        like = "SELECT poke_context FROM sensor_instance WHERE poke_context LIKE :day"
        contexts = connection.execute(text(like), {"day": f"%{CONTEXT['ds']}%"})
        assert len(set(contexts.scalars())) == 1  # both ways wait for one condition
    assert row.state is State.SENSING
    adapt(company.cls)(**json.loads(checked.identity.poke_context))  # the pool builds the same


@pytest.mark.parametrize(
    "more",
    [{"strict": True}, {"day": "plain"}, {"parts": ["{{ ds }}"]}],
    ids=["a fixed argument", "no template", "an argument more"],
)
def test_other_arguments_need_a_proof_of_their_own(
    company: Company, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    company.poke_on_worker(monkeypatch)
    with pytest.raises(NotPoolable, match="no first poke on a worker"):
        company.begin(company.blueprint(**more))
    company.begin(company.blueprint(day="{{ run_id }}"))


@pytest.mark.parametrize("name", [name for name in FILES if name not in ("unused.py", "__init__.py")])
def test_another_version_of_its_code_needs_a_proof_of_its_own(
    company: Company, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    company.poke_on_worker(monkeypatch)
    company.edit("unused.py", "A = 2\n")
    company.begin(company.blueprint())
    company.edit(name, textwrap.dedent(FILES[name]) + "\n# another version\n")
    with pytest.raises(NotPoolable, match="no first poke on a worker"):
        company.begin(company.blueprint())
    company.poke_on_worker(monkeypatch)
    proved_classes._read.clear()
    company.begin(company.blueprint())


def test_another_version_of_its_file_needs_a_proof_of_its_own(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    company.poke_on_worker(monkeypatch)
    company.dag_file.write_text("another version")
    with pytest.raises(NotPoolable, match="no first poke on a worker"):
        company.begin(company.blueprint())


@pytest.mark.parametrize(
    ("name", "source", "why"),
    [
        ("client.py", "import importlib\nx = importlib.import_module('os')\n", "uses import_module"),
        ("client.py", "exec('1')\n", "uses exec"),
        ("client.py", "from importlib import import_module as find\nx = find('os')\n", "uses import_module"),
        ("client.py", "import importlib\nx = getattr(importlib, 'import_' + 'module')\n", "uses importlib"),
        ("client.py", "import importlib as i\nx = vars(i)\n", "uses importlib"),
        ("client.py", "from builtins import exec as run\n", "uses exec"),
        ("client.py", "from airflow.utils.module_loading import import_string\n", "uses import_string"),
        ("client.py", "import pkgutil\nx = pkgutil.resolve_name('os:path')\n", "uses resolve_name"),
        ("client.py", "from pydoc import locate\n", "uses pydoc"),
        ("client.py", "import pickle\n", "uses pickle"),
        ("client.py", "import sys\nx = sys.modules['os']\n", "uses sys.modules"),
        ("client.py", "from sys import modules\n", "uses modules"),
        ("client.py", "from importlib.metadata import entry_points\n", "uses entry_points"),
        ("client.py", "def there(:\n", "cannot be read"),
    ],
)
def test_code_in_doubt_has_no_version(company: Company, name: str, source: str, why: str) -> None:
    company.edit(name, source)
    with pytest.raises(NotPoolable, match=why):
        code_version.version_of(company.cls, time.time() + 60)


def test_a_package_of_which_all_is_imported_counts_with_its_modules(company: Company) -> None:
    (company.package / "parts").mkdir()
    company.write("parts/__init__.py", "__all__ = ['one']\n")
    company.write("parts/one.py", "A = 1\n")
    company.edit("client.py", "import importlib.resources\nfrom proved_company.parts import *\n")
    first = code_version.version_of(company.cls, time.time() + 60)
    company.edit("parts/one.py", "A = 2\n")
    assert code_version.version_of(company.cls, time.time() + 60) != first


def test_code_that_changed_since_it_was_loaded_has_no_version(company: Company) -> None:
    assert company.cls
    with pytest.raises(NotPoolable, match="has changed since this process began"):
        code_version.version_of(company.cls, os.stat(company.package / "client.py").st_ctime - 1)


@pytest.mark.parametrize("day", ["reads the context", "misses a Variable"])
def test_a_poke_that_proves_nothing_is_not_kept(company: Company, monkeypatch: pytest.MonkeyPatch, day: str) -> None:
    try:
        company.poke_on_worker(monkeypatch, day)
    except (AssertionError, pytest.fail.Exception):
        raise
    except BaseException:
        assert day == "reads the context"
    assert company.proofs() == 0


def test_a_poke_whose_lookups_are_not_heard_proves_nothing(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", None)
    company.poke_on_worker(monkeypatch, "misses a Variable")
    assert company.proofs() == 0


def test_a_database_without_the_table_costs_nothing(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    with company.pool.database.engine.begin() as connection:
        connection.execute(text("DROP TABLE class_proof"))
    company.poke_on_worker(monkeypatch)
    with pytest.raises(Exception, match="no sensorpool tables"):
        company.begin(company.blueprint())


def test_a_database_that_is_away_sends_it_to_a_worker(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> None:
        raise Unreachable("away")

    company.poke_on_worker(monkeypatch)
    monkeypatch.setattr(company.pool.database, "read", away)
    with pytest.raises(Unreachable):
        company.begin(company.blueprint())


@pytest.mark.parametrize("change", ["state", "constructor"])
def test_another_state_than_on_the_worker_sends_it_to_a_worker(
    company: Company, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """The worker's DAG file had changed the module, or its constructor finds something else there."""
    if change == "state":
        monkeypatch.setattr(importlib.import_module("proved_company.config"), "ROOT", "/of this file")
        company.poke_on_worker(monkeypatch)
        company.forget()
    else:
        company.poke_on_worker(monkeypatch)
        monkeypatch.setattr("tempfile.gettempdir", lambda: "/elsewhere")
    assert company.proofs() == 1
    why = {"state": "is another one than on its worker", "constructor": "no first poke on a worker"}[change]
    with pytest.raises(NotPoolable, match=why):
        company.begin(company.blueprint())


def test_a_constructor_that_judges_its_arguments_sees_templates_as_natively(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Natively it never sees what a template becomes; where that would make another sensor, none begins here."""
    source = textwrap.dedent(FILES["sensors.py"])
    assigned = "self.day, self.strict, self.parts = day, strict, parts\n"
    company.edit("sensors.py", source.replace(assigned, f"{assigned}        self.is_pattern = '*' in day\n"))
    company.poke_on_worker(monkeypatch, "/one")
    company.forget()
    blueprint, key = company.blueprint(day="{{ run_id }}"), deferral.key_of(context_of(company.task())["ti"])
    for day in ("/another", "/*"):
        by_worker = company.task()
        by_worker.day = day
        if day == "/another":
            registration.prepare(company.pool, blueprint, key, "x", {**CONTEXT, "run_id": day})
            rebuild.poke_context_of(by_worker)
        else:
            with pytest.raises(NotPoolable, match="attribute is_pattern is another one"):
                rebuild.poke_context_of(by_worker)
            with pytest.raises(NotPoolable, match="attribute is_pattern is another one"):
                registration.prepare(company.pool, blueprint, key, "x", {**CONTEXT, "run_id": day})


@pytest.mark.parametrize(
    "change", ["os.environ['SEEN'] = 'x'", "os.chdir('/')", "import socket; socket.setdefaulttimeout(7)"]
)
@pytest.mark.parametrize("catches", [False, True])
def test_a_constructor_that_changes_its_process_changes_no_triggerer(
    company: Company, monkeypatch: pytest.MonkeyPatch, change: str, catches: bool
) -> None:
    def state() -> Any:
        return os.environ.get("SEEN"), os.getcwd(), socket.getdefaulttimeout()

    before = state()
    lines = [
        "super().__init__(**kwargs)",
        *(["try:", f"    {change}", "except BaseException: pass"] if catches else [change]),
    ]
    company.edit("sensors.py", FILES["sensors.py"].replace(lines[0], ("\n" + " " * 16).join(lines)))
    with monkeypatch.context() as worker:
        worker.setenv("SEEN", "")
        worker.chdir(os.getcwd())
        company.poke_on_worker(monkeypatch)
        blueprint = company.blueprint()
        key = deferral.key_of(context_of(company.task())["ti"])
    socket.setdefaulttimeout(None)
    assert state() == before
    assert company.proofs() == 1
    with pytest.raises(NotPoolable, match=r"its constructor (sets|changes)"):
        registration.prepare(company.pool, blueprint, key, "x", CONTEXT)
    assert state() == before


def test_a_change_that_another_thread_has_seen_is_not_put_back_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["one"])
    has_changed, may_end, said = threading.Event(), threading.Event(), list[str]()

    def change() -> None:
        try:
            with company_code.guarded():
                sys.argv = ["changed"]
                has_changed.set()
                may_end.wait(60)
        except NotPoolable as error:
            said.append(str(error))

    thread = threading.Thread(target=change)
    thread.start()
    assert has_changed.wait(60)
    with company_code.guarded():
        may_end.set()
        thread.join()
    assert said == ["its constructor changes sys.argv of its process"]
    assert sys.argv == ["one"]


def test_code_that_was_never_proved_is_not_imported(company: Company) -> None:
    blueprint, key = company.blueprint(), deferral.key_of(context_of(company.task())["ti"])
    company.forget()
    with pytest.raises(NotPoolable, match="no first poke on a worker"):
        registration.prepare(company.pool, blueprint, key, "x", CONTEXT)
    assert "proved_company.sensors" not in sys.modules


def test_what_a_constructor_finds_for_other_arguments_needs_a_proof_of_its_own(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environments of worker and triggerer are the same for the one partner, and others for the other one."""
    source = textwrap.dedent(FILES["sensors.py"])
    assigned = "self.day, self.strict, self.parts = day, strict, parts\n"
    company.edit("sensors.py", source.replace(assigned, f"{assigned}        self.root = os.environ.get('OF_' + day)\n"))
    monkeypatch.setenv("OF_one", "/data")
    monkeypatch.setenv("OF_other", "/on worker")
    process_start.remember()  # this is no change of a task
    company.poke_on_worker(monkeypatch, "one", given="one")
    company.begin(company.blueprint(day="one"))
    company.poke_on_worker(monkeypatch, "other", given="other")
    monkeypatch.setenv("OF_other", "/in the triggerer")
    process_start.remember()
    company.forget()
    company.begin(company.blueprint(day="one"))
    with pytest.raises(NotPoolable, match="no first poke on a worker"):
        company.begin(company.blueprint(day="other"))
    company.poke_on_worker(monkeypatch, "other", given="other")  # by a worker with the new environment
    company.forget()
    company.begin(company.blueprint(day="other"))


def test_a_class_that_is_handed_back_is_withdrawn(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    company.poke_on_worker(monkeypatch)
    company.begin(company.blueprint())
    sensor = company.task(timeout=0)
    sensor.day = "2026-02-28"
    event = InstanceResult(State.CANCELLED, Ending.HANDED_BACK, "its poke changes its process").as_payload()
    with pytest.raises(Exception, match="timed out"):
        as_runner(sensor, "resume_execution", patch.RESUME, {"event": event}, context_of(sensor))
    assert company.proofs() == 0
    proved_classes._read.clear()
    with pytest.raises(NotPoolable, match="no first poke on a worker"):
        company.begin(company.blueprint())


def test_the_mark_is_the_same_at_each_parse(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was learned, and state that is another in each process, is not in it."""
    company.edit("config.py", "import datetime\nROOT = str(datetime.datetime.now())\n")
    first = company.blueprint()
    company.poke_on_worker(monkeypatch)
    company.forget()
    assert company.blueprint().as_text() == first.as_text()


def test_what_its_file_changes_in_the_environment_keeps_it_on_workers(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    company.edit("client.py", "import os\ndef there(day, root):\n    return os.environ.get('PROFILE') == day\n")
    assert importlib.import_module("proved_company.client")
    monkeypatch.setattr(process_start, "_started", None)
    process_start.remember()
    monkeypatch.setenv("PROFILE", "team")
    sensor = company.task()
    parse.give_blueprint(sensor)
    assert not sensor.start_from_trigger


@pytest.mark.parametrize("without", [{"first_poke": "pool"}, {}], ids=["first_poke", "file"])
def test_what_cannot_be_proved_gets_no_blueprint(
    company: Company, monkeypatch: pytest.MonkeyPatch, without: dict[str, Any]
) -> None:
    if without:
        settings = AirflowSettings(enabled=True, start="scheduler", **without)
        monkeypatch.setattr(deferral, "airflow_settings", lambda: settings)
    else:
        company.dag_file.unlink()
    sensor = company.task()
    parse.give_blueprint(sensor)
    assert not sensor.start_from_trigger
