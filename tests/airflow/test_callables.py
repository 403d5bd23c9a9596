"""Sensors that take a function: in the pool it is found by its name, and they end as they do natively."""

import ast
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import partial, wraps
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow.providers.standard")

from airflow.dag_processing.bundles.base import BaseDagBundle
from airflow.providers.amazon.aws.sensors.s3 import S3KeySensor
from airflow.providers.common.sql.sensors.sql import SqlSensor
from airflow.providers.http.sensors.http import HttpSensor
from airflow.providers.standard.sensors.python import PythonSensor
from airflow.sdk import DAG, task
from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.context import set_current_context
from sqlalchemy import make_url

from harness.servers import fresh_database
from sensorpool import Pool, Settings
from sensorpool.airflow.compat import task_runtime
from sensorpool.airflow.compat.exceptions import TaskDeferred
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.pool.checks import check_callables
from sensorpool.airflow.proof.arguments import callables, portable_values
from sensorpool.airflow.proof.codec import decode
from sensorpool.airflow.result import Landing
from sensorpool.airflow.task import deferral, patch, poolable, reschedule_condition, saved_attributes, sensor_task
from sensorpool.airflow.task.first_poke import FirstPoke
from sensorpool.errors import CannotPoke, HandBack
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Fact
from sensorpool.poke.classes import Classes
from sensorpool.poke.poker import Poker
from tests.airflow.running import as_runner, context_of, in_dag, pool_of_process
from tests.security.canary import Canary
from tests.sensors.serving import Server, answer
from tests.support.poke_child import ends_of

Checks = Callable[..., Any]
_MODULE = """
import functools, os, pathlib
from os import system
from subprocess import run
from airflow.sdk import get_current_context
from airflow.sdk.bases.sensor import PokeReturnValue

N = 0
TOP = 2

def wrapped(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)
    return inner

def ready(path, *more, **_none):
    return bool(more) and pathlib.Path(path).exists()

def lines(path, least=TOP):
    found = pathlib.Path(path)
    return found.read_text().split() if found.exists() and len(found.read_text().split()) >= least else None

def valued(path, suffix):
    found = pathlib.Path(path).exists()
    return PokeReturnValue(found, {"found": [path + suffix]} if found else None)

def templated(templates_dict):
    return pathlib.Path(templates_dict["path"]).exists()

def never(): return 0
def falls(path): raise ValueError(f"no {path}")
def odd(path, ds): return pathlib.Path(path).exists() and ds == "2026-01-01"
def takes_all(path, **context): return False
def takes_ti(path, ti=None): return False
def asks(): return get_current_context()["ti"] is None
def grows(seen):
    seen.append(1)
    return len(seen) > 2
def counts():
    global N
    N += 1
    return N > 2
def keeps(path):
    keeps.last = path
    return False
def sets():
    os.environ["CHECKS"] = "1"
    return False
def removes(path):
    if pathlib.Path(path).exists():
        pathlib.Path(path).unlink()
        return True
    return False
def first_cell(row): return row[0]
def positive(cell): return cell > 0
def big(cell): return cell > 100
def says_done(response): return response.text == "done"
def says_done_today(response, ds): return response.text == ds
def sized(files): return sum(file["Size"] for file in files) > 10
def sized_by_context(files, **context): return True

@wrapped
def decorated(path): return False

class Checks:
    @staticmethod
    def ready(): return False
    def method(self): return False
    def __call__(self): return False

bound = Checks().method
instance = Checks()
other = ready
dotless = lambda: False
"""


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """A company's module of functions, which both the worker and the pool can import and are allowed to."""
    package = f"acme_{abs(hash(request.node.name))}"
    folder = tmp_path / package
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "checks.py").write_text(_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    enable(monkeypatch, f"{package}.*")
    importlib.invalidate_caches()
    yield importlib.import_module(f"{package}.checks")
    callables._enabled.cache_clear()
    callables._failures.clear()
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{package}.")]:
        del sys.modules[name]


def enable(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setenv("SENSORPOOL_CALLABLES_ENABLED", ",".join(names))
    callables._enabled.cache_clear()


def condition_of(sensor: Any, **context: Any) -> dict[str, Any]:
    """Return the poke_context of a sensor, as its worker registers it."""
    settings = Settings.load(sensors_enabled=path_of(sensor))
    condition = poolable.condition_of(sensor, context_of(sensor, **context), settings, AirflowSettings.load())
    return dict(json.loads(json.dumps(condition.poke_context)))


def path_of(sensor: Any) -> str:
    return f"{type(sensor).__module__}.{type(sensor).__qualname__}"


def in_the_pool(sensor: Any, **context: Any) -> Any:
    """Return what the pool pokes for a sensor: through JSON, by the pool's own code."""
    poke_context = condition_of(sensor, **context)
    return Classes([path_of(sensor)]).find(path_of(sensor)).construct(poke_context)


def answer_of(poke: Callable[[Any], Any], context: Any) -> Any:
    """Return what a poke says, in one spelling for both sides."""
    try:
        found = poke(context)
    except Exception as error:
        return type(error), str(error)
    if type(found).__module__.startswith("sensorpool."):
        landing = Landing.read(found.xcom_value)
        return True, landing.value
    return bool(found), getattr(found, "xcom_value", None)


def reasons_of(sensor: Any, monkeypatch: pytest.MonkeyPatch, **more: Any) -> list[str]:
    """Poke a sensor once on its worker, as its task does; return why it keeps its slot."""
    reasons: list[str] = []
    monkeypatch.setattr(deferral, "report_native", lambda _, error: reasons.append(str(error)))

    def native(sensor: Any, context: Any) -> None:
        assert not sensor.poke(context)
        sensor._get_next_poke_interval(None, lambda: 0.0, 1)

    FirstPoke(sensor, native, 60.0, list).poke(context_of(sensor, **more))
    return reasons


# as natively


def _python(name: str, **arguments: Any) -> Callable[[ModuleType, str], Any]:
    def construct(checks: ModuleType, path: str) -> Any:
        given = json.loads(json.dumps(arguments).replace("PATH", path))
        return in_dag(PythonSensor, python_callable=getattr(checks, name), **given)

    return construct


SENSORS = {
    "keywords": _python("lines", op_kwargs={"path": "PATH"}),
    "too many keywords": _python("lines", op_kwargs={"path": "PATH", "least": 1, "unused": 7}),
    "positions": _python("lines", op_args=["PATH", 1]),
    "both": _python("lines", op_args=["PATH"], op_kwargs={"least": 1}),
    "one too few": _python("valued", op_args=["PATH"]),
    "reserved": _python("lines", op_args=["PATH"], op_kwargs={"path": "PATH"}),
    "a value": _python("valued", op_args=["PATH", "!"]),
    "templates": _python("templated", templates_dict={"path": "PATH"}),
    "templates, reserved": _python("templated", op_args=[{"path": "PATH"}]),
    "no arguments": _python("never"),
    "keywords of no use": _python("never", op_kwargs={"path": "PATH"}),
    "an error": _python("falls", op_args=["PATH"]),
    "a name of the context": _python("odd", op_kwargs={"path": "PATH", "ds": "2026-01-01"}),
}


@pytest.mark.parametrize("kind", SENSORS)
def test_python_sensors_answer_as_natively(checks: ModuleType, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "arrived"
    native, sensor = SENSORS[kind](checks, str(path)), SENSORS[kind](checks, str(path))
    context = {"ds": "2026-06-01", "params": {}, **context_of(native)}
    pooled = in_the_pool(sensor, ds="2026-06-01", params={})
    for text in (None, None, "one", "one two", None, "one two three"):
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        expected = answer_of(native.poke, context)
        assert answer_of(pooled.poke, {}) == expected
        native = SENSORS[kind](checks, str(path)) if isinstance(expected[0], type) else native


def test_a_callable_is_its_name_in_the_condition(checks: ModuleType) -> None:
    sensor = in_dag(PythonSensor, python_callable=checks.never)
    found = condition_of(sensor)
    assert found["python_callable"] == {"__type__": "callable", "value": f"{checks.__name__}.never"}
    assert condition_of(in_dag(PythonSensor, python_callable=checks.never)) == found
    other = condition_of(in_dag(PythonSensor, python_callable=checks.asks))
    assert other["python_callable"] != found["python_callable"], "another function is another condition"


def test_one_among_arguments_within(checks: ModuleType) -> None:
    sensor = in_dag(PythonSensor, python_callable=checks.lines, op_kwargs={"path": [(checks.never, {"x": checks.big})]})
    pooled = in_the_pool(sensor)
    assert pooled._operator.op_kwargs == {"path": [(checks.never, {"x": checks.big})]}


def test_sql(checks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Any] = []
    monkeypatch.setattr(SqlSensor, "_get_hook", lambda _: SimpleNamespace(get_records=lambda *_: rows))
    given = {"selector": checks.first_cell, "success": checks.positive, "failure": checks.big}
    native, pooled = (in_dag(SqlSensor, conn_id="x", sql="x", **given) for _ in range(2))
    pooled = in_the_pool(pooled)
    for number in (0, 0, 1, 1_000):
        rows[:] = [(number,)]
        said = answer_of(pooled.poke, {})
        assert said == answer_of(native.poke, context_of(native))
    assert "Failure criteria met" in said[1]


def test_http(checks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    monkeypatch.setenv("AIRFLOW_CONN_HTTP_DEFAULT", server.url)
    native, pooled = (in_dag(HttpSensor, endpoint="x", response_check=checks.says_done) for _ in range(2))
    pooled = in_the_pool(pooled, ds="2026-01-01")
    for said in ("not yet", "done"):
        server.at["/x"] = answer(200, said.encode())
        assert pooled.poke({}) is native.poke(context_of(native, ds="2026-01-01")) is (said == "done")
    assert reasons_of(in_dag(HttpSensor, endpoint="y", response_check=checks.says_done), monkeypatch) == []
    server.close()


def test_s3(checks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [1]
    hook = SimpleNamespace(
        get_s3_bucket_key=lambda bucket, key, *_: (bucket, key),
        head_object=lambda *_: {"ContentLength": sizes[-1], "Key": "k"},
    )
    monkeypatch.setattr(S3KeySensor, "hook", hook)
    pooled = in_the_pool(in_dag(S3KeySensor, bucket_key="s3://b/k", check_fn=checks.sized))
    assert pooled.poke({}) is False
    sizes.append(11)
    assert pooled.poke({}) is True


# what keeps the slot


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("decorated", "a decorator has made it"),
        ("dotless", "defined within another object"),
        ("bound", "no plain function"),
        ("instance", "no plain function"),
        ("Checks", "no plain function"),
        ("system", "no plain function"),
        ("run", "its callable subprocess.run is of Python itself: call it in a function of your own"),
    ],
)
def test_what_has_no_name_of_its_own_runs_natively(checks: ModuleType, name: str, why: str) -> None:
    with pytest.raises(NotPoolable) as refused:
        condition_of(in_dag(PythonSensor, python_callable=getattr(checks, name)))
    assert why in str(refused.value)


def test_more_that_has_no_name_of_its_own(checks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def inner() -> bool:
        return False

    of_dag = ModuleType("unusual_prefix_0a1b_dag")
    exec("def ready(): return False", vars(of_dag))
    monkeypatch.setitem(sys.modules, of_dag.__name__, of_dag)
    impostor = wraps(checks.never)(lambda: True)
    renamed = type(checks.never)(checks.never.__code__, checks.__dict__, "never")
    for given, why in [
        (inner, "defined within another object"),
        (partial(checks.ready, "x"), "no plain function"),
        (checks.Checks.ready, "defined within another object"),
        (vars(of_dag)["ready"], "defined in a DAG file"),
        (impostor, "a decorator has made it"),
        (renamed, "has another object by that name"),
        (len, "no plain function"),
    ]:
        with pytest.raises(NotPoolable, match=why):
            condition_of(in_dag(PythonSensor, python_callable=given))
    checks.never = checks.asks
    with pytest.raises(NotPoolable, match=r"acme_\d+\.checks\.asks|has another object|a decorator"):
        condition_of(in_dag(PythonSensor, python_callable=renamed))


def test_another_name_is_the_functions_own(checks: ModuleType) -> None:
    sensor = in_dag(PythonSensor, python_callable=checks.other, op_kwargs={"path": "p"})
    with pytest.raises(NotPoolable, match=r"takes the whole template context \(\*\*\)"):
        condition_of(sensor)
    assert callables.name_of(checks.other, "x") == f"{checks.__name__}.ready"


@pytest.mark.parametrize(
    ("cls", "given", "why"),
    [
        (PythonSensor, {"python_callable": "takes_all"}, r"takes the whole template context \(\*\*\)"),
        (PythonSensor, {"python_callable": "takes_ti"}, "takes ti of the template context"),
        (PythonSensor, {"python_callable": "odd"}, "takes ds of .*; give it in op_kwargs, as '{{ ds }}'"),
        (HttpSensor, {"endpoint": "x", "response_check": "says_done_today"}, "response_check takes ds"),
        (S3KeySensor, {"bucket_key": "s3://b/k", "check_fn": "sized_by_context"}, r"check_fn takes the whole"),
    ],
)
def test_what_takes_the_context_runs_natively(checks: ModuleType, cls: Any, given: Any, why: str) -> None:
    given = {name: getattr(checks, value, value) for name, value in given.items()}
    with pytest.raises(NotPoolable, match=why):
        condition_of(in_dag(cls, **given))


def test_a_context_with_names_of_its_own_keeps_it(checks: ModuleType) -> None:
    """A `pre_execute` may have put them there, and the function may take them."""
    with pytest.raises(NotPoolable, match="a name of its own, partner"):
        condition_of(in_dag(PythonSensor, python_callable=checks.never), partner="acme")


def test_the_names_of_airflows_context_are_known() -> None:
    """All that the task runner gives: an unknown name would keep every sensor with a function on its worker."""
    source = textwrap.dedent(inspect.getsource(task_runner.RuntimeTaskInstance.get_template_context))
    keys = [key for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Dict) for key in node.keys]
    given = {key.value for key in keys if isinstance(key, ast.Constant)} - {"json", "value"}  # these are of `var`
    assert {"ti", "ds", "params", "dag_run", "task_reschedule_count"} < given
    assert given <= task_runtime.template_names()
    assert "templates_dict" not in task_runtime.template_names()


def test_the_folder_of_the_bundle_is_known() -> None:
    assert "bundle_instance" in task_runner.RuntimeTaskInstance.model_fields
    assert isinstance(BaseDagBundle.path, property)


def test_a_module_in_the_folder_of_the_dags_is_not_the_pools(checks: ModuleType, tmp_path: Path) -> None:
    sensor = in_dag(PythonSensor, python_callable=checks.never)
    context = context_of(sensor)
    context["ti"].bundle_instance = SimpleNamespace(path=tmp_path)
    with pytest.raises(NotPoolable, match="lies in the folder of the DAGs"):
        condition_of(sensor, **context)
    context["ti"].bundle_instance = SimpleNamespace(path=tmp_path / "dags")
    assert condition_of(sensor, **context)


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("grows", {"op_args": [[]]}, "its poke changes its attribute op_args"),
        ("grows", {"op_kwargs": {"seen": []}}, "its poke changes its attribute op_kwargs"),
        ("counts", {}, "changes .*checks.N, which all sensors of a process share"),
        ("keeps", {"op_args": ["x"]}, "changes .*keeps.last, which all sensors"),
        ("asks", {}, "calls get_current_context"),
        ("sets", {}, "environment"),
    ],
)
def test_what_the_first_poke_of_a_callable_shows(
    checks: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, arguments: Any, why: str
) -> None:
    """Its sensor is of a reviewed class; the function is not."""
    monkeypatch.delenv("CHECKS", raising=False)
    sensor = in_dag(PythonSensor, python_callable=getattr(checks, name), **arguments)
    condition_of(sensor)
    with set_current_context(context_of(sensor)):
        [reason] = reasons_of(sensor, monkeypatch)
    assert re.search(why, reason)


@pytest.mark.parametrize("arguments", [{"op_kwargs": {"path": "p", "more": 1}}, {"op_args": ["p"]}])
def test_a_first_poke_that_finds_nothing_is_pooled(
    checks: ModuleType, monkeypatch: pytest.MonkeyPatch, arguments: Any
) -> None:
    sensor = in_dag(PythonSensor, python_callable=checks.lines, **arguments)
    before = dict(vars(sensor))
    assert reasons_of(sensor, monkeypatch, params={}, ds="2026-01-01") == []
    assert vars(sensor)["op_kwargs"] == before["op_kwargs"]


# in the pool


def test_one_that_is_not_listed_is_not_imported(checks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    sensor = in_dag(PythonSensor, python_callable=checks.never)
    poke_context = condition_of(sensor)
    enable(monkeypatch, "acme_other.*", f"{checks.__name__}.asks")
    monkeypatch.delitem(sys.modules, checks.__name__)
    with pytest.raises(CannotPoke, match=r"checks.never is not enabled: add it to SENSORPOOL_CALLABLES_ENABLED"):
        Classes([path_of(sensor)]).find(path_of(sensor)).construct(poke_context)
    assert checks.__name__ not in sys.modules
    monkeypatch.setitem(sys.modules, checks.__name__, checks)
    with pytest.raises(NotPoolable, match=r"checks.never is not in \[sensorpool\] callables_enabled: add it there"):
        condition_of(sensor)


def poked(op_classpath: str, poke_context: Any) -> Any:
    """Return the report of the pool's poke of a group."""
    cache = Poker(Settings.load(sensors_enabled=op_classpath)).cache
    kept = cache.keep(DueGroup(1, 1, 7, 1, 60_000, 0, 0, None), op_classpath, json.dumps(poke_context))
    [report] = kept.poke()
    return report


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("CHECKS.os.system", "cannot be imported"),
        ("CHECKS.system", "no plain function of that name"),
        ("CHECKS.run", "no plain function of that name"),
        ("CHECKS.other", "no plain function of that name"),
        ("CHECKS.decorated", "no plain function of that name"),
        ("CHECKS.instance", "no plain function of that name"),
        ("CHECKS.Checks", "no plain function of that name"),
        ("CHECKS.Checks.ready", "cannot be imported"),
        ("CHECKS.gone", "no plain function of that name"),
        ("CHECKS.__builtins__.eval", "cannot be imported"),
        ("os.system", "not enabled"),
        ("builtins.eval", "not enabled"),
        ("CHECKS2.never", "not enabled"),
    ],
)
def test_a_planted_name_gets_no_other_object(checks: ModuleType, name: str, why: str) -> None:
    """Left to other processes, as a class that is not listed."""
    planted = {"__type__": "callable", "value": name.replace("CHECKS2", "acme2").replace("CHECKS", checks.__name__)}
    report = poked(f"{PythonSensor.__module__}.PythonSensor", {"python_callable": planted})
    assert report.outcome is Outcome.CANNOT_POKE
    assert why in report.reason


def test_the_lane_apart_holds_to_the_allowlist(checks: ModuleType, tmp_path: Path) -> None:
    """The child process, asked directly, with names that would find the module of the canary."""
    canary = Canary(tmp_path)
    path = f"{PythonSensor.__module__}.PythonSensor"
    names = ["canary_at_import.Canary", "canary_at_import.Canary.poke", "os.system", f"{checks.__name__}.system"]
    contexts = [
        {"python_callable": {"__type__": "callable", "value": name}, "op_args": [canary.command]} for name in names
    ]
    good = condition_of(in_dag(PythonSensor, python_callable=checks.never))
    asked = [(path, json.dumps(context)) for context in (*contexts, good)]
    told = ends_of(asked, enabled=[path], folder=tmp_path, environment=canary.environment)
    ends = {number: end["outcome"] for number, end in told.items()}
    assert ends == dict.fromkeys(range(1, 5), "cannot_poke") | {5: "not_landed"}
    assert canary.is_untouched


@pytest.mark.parametrize(
    "value", ["", "x", "a b.c", "a..b", 7, None, ["os.system"], {"__type__": "callable"}, "a." * 300]
)
def test_what_is_no_name_is_handed_back(checks: ModuleType, value: Any) -> None:
    report = poked(
        f"{PythonSensor.__module__}.PythonSensor", {"python_callable": {"__type__": "callable", "value": value}}
    )
    assert report.outcome is Outcome.HAND_BACK


def test_values_of_other_places_name_no_function(checks: ModuleType) -> None:
    """An XCom value, and the arguments of a resumed task: they come from tables, too."""
    planted = {"__type__": "callable", "value": f"{checks.__name__}.never"}
    for read in (decode, portable_values.load):
        with pytest.raises(ValueError, match="there is no type 'callable'"):
            read(planted)


def test_a_module_that_fails_is_tried_again_later(checks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    poke_context = condition_of(in_dag(PythonSensor, python_callable=checks.never))
    file, text = Path(str(checks.__file__)), Path(str(checks.__file__)).read_text()
    monkeypatch.delitem(sys.modules, checks.__name__)
    file.write_text(f"raise SystemExit('half installed')\n{text}")
    path = f"{PythonSensor.__module__}.PythonSensor"
    assert "half installed" in poked(path, poke_context).reason
    file.write_text(text + "\n# mended")
    assert "half installed" in poked(path, poke_context).reason, "not yet"
    monkeypatch.setattr(callables, "_failures", {checks.__name__: (0.0, "")})
    assert poked(path, poke_context).outcome is Outcome.NOT_LANDED


def test_other_code_in_the_pool_that_takes_the_context_is_handed_back(
    checks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that was changed since it was registered."""
    for text in ("def never(ds): return True", "def never(**context): return True", "def never(ti=None): return True"):
        poke_context = condition_of(in_dag(PythonSensor, python_callable=checks.never))
        with monkeypatch.context() as patched:
            patched.setattr(checks, "never", checks.never)
            exec(textwrap.dedent(text), vars(checks))
            pooled = Classes([f"{PythonSensor.__module__}.PythonSensor"]).find(
                f"{PythonSensor.__module__}.PythonSensor"
            )
            with pytest.raises(HandBack, match="template context"):
                pooled.construct(poke_context).poke({})


def test_what_later_pokes_change_is_handed_back(checks: ModuleType, tmp_path: Path) -> None:
    pooled = in_the_pool(in_dag(PythonSensor, python_callable=checks.grows, op_kwargs={"seen": []}))
    with pytest.raises(HandBack, match="changes its attribute op_kwargs"):
        pooled.poke({})
    shared = in_the_pool(in_dag(PythonSensor, python_callable=checks.counts))
    with pytest.raises(HandBack, match=r"checks\.N"):
        shared.poke({})


def test_data_of_its_module_that_is_another_is_handed_back(checks: ModuleType) -> None:
    sensor = in_dag(PythonSensor, python_callable=checks.counts)
    poke_context = condition_of(sensor)
    checks.N = -7
    with pytest.raises(HandBack, match=r"its attribute .*checks\.N is another one"):
        Classes([path_of(sensor)]).find(path_of(sensor)).construct(poke_context)


def test_two_callables_of_one_class_are_judged_by_themselves(checks: ModuleType) -> None:
    sensors = [in_dag(PythonSensor, python_callable=each) for each in (checks.counts, checks.never, checks.never)]
    found = Classes([path_of(sensors[0])]).find(path_of(sensors[0]))
    one, other, third = (found.construct(condition_of(sensor)) for sensor in sensors)
    assert type(one) is not type(other) is type(third)
    with pytest.raises(HandBack, match=r"checks\.N"):
        one.poke({})
    assert other.poke({}) is False, "it has no part in what the other one shares"


# a class of a company, with a function as its argument


class Asks(BaseSensorOperator):
    """Calls its function with a value of its own."""

    def __init__(self, *, function: Any, value: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.function = function
        self.value = value

    def poke(self, context: Any) -> Any:
        """Call it."""
        return self.function(self.value)


class AsksForMore(Asks):
    """Gives its function the whole context."""

    def poke(self, context: Any) -> Any:
        """Call it."""
        return self.function(self.value, **context)


class Declares(Asks):
    """Says itself what its answer depends on."""

    poke_context_fields = ("function", "value")


@pytest.mark.parametrize("cls", [Asks, Declares])
def test_a_companys_class(checks: ModuleType, tmp_path: Path, cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sensor = in_dag(cls, function=checks.lines, value=str(tmp_path / "x"))
    pooled = in_the_pool(sensor)
    assert reasons_of(sensor, monkeypatch) == []
    assert pooled.poke({}) in (False, None)
    (tmp_path / "x").write_text("a b")
    assert pooled.poke({}) == ["a", "b"]


def test_a_companys_class_that_gives_the_context(checks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    [reason] = reasons_of(in_dag(AsksForMore, function=checks.takes_all), monkeypatch)
    assert "from the template context" in reason
    pooled = in_the_pool(in_dag(AsksForMore, function=checks.takes_all))
    with pytest.raises(HandBack, match="reads the template context"):
        pooled.poke({})


# when the task resumes


def test_a_resumed_task_has_the_same_condition(checks: ModuleType) -> None:
    sensor = in_dag(PythonSensor, python_callable=checks.never, mode="reschedule")
    condition = poolable.unchecked_condition_of(sensor, context_of(sensor))
    digest = reschedule_condition.resume_arguments(condition)[reschedule_condition.NAME]
    again = in_dag(PythonSensor, python_callable=checks.never, mode="reschedule")
    result: Any = SimpleNamespace(ending="landed")
    assert reschedule_condition.result_if_unchanged(again, context_of(again), result, digest) is result
    other = in_dag(PythonSensor, python_callable=checks.asks, mode="reschedule")
    found = reschedule_condition.result_if_unchanged(other, context_of(other), result, digest)
    assert found.ending == "handed_back"


def test_the_constants_of_its_module_are_saved(checks: ModuleType) -> None:
    sensor = in_dag(PythonSensor, python_callable=checks.counts)
    saved = saved_attributes.save(sensor)
    assert "python_callable" not in json.loads(saved[saved_attributes.NAME])["values"]
    checks.N = 7
    assert saved_attributes.restore(sensor, saved[saved_attributes.NAME]) is None
    assert checks.N == 0


def test_a_task_sensor(checks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `@task.sensor` stands above is no function of its module any more; one that it is called with is."""
    with DAG("dag", schedule=None):
        sensor = task.sensor(checks.lines)(str(tmp_path / "x")).operator
        monkeypatch.setattr(checks, "never", task.sensor(checks.never))
        decorated = checks.never().operator
    with pytest.raises(NotPoolable, match="has another object by that name"):
        condition_of(decorated)
    pooled = in_the_pool(sensor)
    assert reasons_of(sensor, monkeypatch) == []
    assert pooled.poke({}) is False
    (tmp_path / "x").write_text("a b")
    assert pooled.poke({}) is True


def test_what_runs_afterwards_sees_the_names_that_a_poke_adds(
    checks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Natively the last poke has put them into the context, and a callback may read them there."""
    arguments = {"op_kwargs": {"path": "p"}, "templates_dict": {"x": 1}}
    monkeypatch.setattr(PythonSensor, "execute", lambda *_: None)
    sensor = in_dag(PythonSensor, python_callable=checks.lines, **arguments)
    context = context_of(sensor)
    sensor_task.resume(sensor, context, {"state": "success", "ending": "landed", "xcom_value": None})
    assert (context["path"], context["templates_dict"]) == ("p", {"x": 1})


def test_the_whole_way_on_a_worker(checks: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A poke that lands on the worker ends the task natively, with its value."""
    (tmp_path / "x").touch()
    sensor = in_dag(PythonSensor, python_callable=checks.valued, op_args=[str(tmp_path / "x"), "!"])
    first = FirstPoke(sensor, lambda one, context: as_runner(one, "execute", context), 10.0, list)
    assert first.poke(context_of(sensor)) == {"found": [f"{tmp_path / 'x'}!"]}
    assert first.ended


def test_the_allowlist_is_read_once_and_a_wrong_one_is_no_answer(
    checks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensor = in_dag(PythonSensor, python_callable=checks.never)
    poke_context = condition_of(sensor)
    enable(monkeypatch, "os.*")
    report = poked(path_of(sensor), poke_context)
    assert report.outcome is Outcome.CANNOT_POKE
    assert "is of Python itself" in report.reason


def test_sql_on_a_server(
    checks: ModuleType, monkeypatch: pytest.MonkeyPatch, postgres_server: Any, tmp_path: Path
) -> None:
    """With the hooks of the provider: they are no state of the functions."""
    with fresh_database(postgres_server) as url:
        uri = make_url(url).set(drivername="postgres").render_as_string(False)
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", uri)
        given = {"selector": checks.first_cell, "success": checks.positive, "failure": checks.big}
        sensors = [in_dag(SqlSensor, conn_id="warehouse", sql=f"SELECT {number}", **given) for number in (0, 1, 1_000)]
        assert reasons_of(sensors[0], monkeypatch) == []
        found = [answer_of(in_the_pool(sensor).poke, {}) for sensor in sensors]
        assert found[:2] == [(False, None), (True, None)]
        assert "Failure criteria met" in found[2][1]


def test_a_function_of_a_plugin(checks: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The pool's process finds it in Airflow's folder of plugins."""
    plugins = tmp_path / "home" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "acme_plugin.py").write_text("def ready(): return True")
    path = f"{PythonSensor.__module__}.PythonSensor"
    context = {"python_callable": {"__type__": "callable", "value": "acme_plugin.ready"}}
    code = """
import json, sys
from sensorpool.poke.classes import Classes
path, context = json.loads(sys.argv[1])
sensor = Classes([path]).find(path).construct(context)
print(sensor._operator.python_callable.__globals__["__file__"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps([path, context])],
        env=os.environ | {"AIRFLOW_HOME": str(tmp_path / "home"), "SENSORPOOL_CALLABLES_ENABLED": "acme_plugin.*"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "acme_plugin.py" in done.stdout + done.stderr, done.stderr


def test_the_doctor_says_which_it_cannot_import(checks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    enable(monkeypatch, f"{checks.__name__}.never", f"{checks.__name__}.gone", "acme_other.*")
    found = list(check_callables(AirflowSettings.load()))
    assert [finding.level for finding in found] == ["ok", "warning"]
    assert "checks.gone is no plain function of that name" in found[1].said
    enable(monkeypatch)
    assert list(check_callables(AirflowSettings.load())) == []


# the whole way


@pytest.fixture
def pool(checks: ModuleType, postgres_database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    enabled = f"{PythonSensor.__module__}.PythonSensor"
    with pool_of_process(monkeypatch, postgres_database, redis_url, enabled) as made:
        yield made


@pytest.mark.parametrize("mode", ["poke", "reschedule"])
def test_a_task_waits_in_the_pool_and_ends_with_the_value(
    pool: Pool, checks: ModuleType, tmp_path: Path, mode: str
) -> None:
    path = tmp_path / "x"

    def made() -> Any:
        arguments = {"op_args": [str(path)], "op_kwargs": {"suffix": "!"}, "poke_interval": 30}
        return in_dag(PythonSensor, python_callable=checks.valued, mode=mode, **arguments)

    sensor = made()
    with pytest.raises(TaskDeferred) as deferred:
        as_runner(sensor, "execute", context_of(sensor))
    with pool.database.engine.connect() as connection:
        [row] = connection.exec_driver_sql("SELECT * FROM poke_group").mappings()
    cache = Poker(pool.settings).cache
    kept = cache.keep(
        DueGroup(row["id"], 1, row["hashcode"], 1, 30_000, 0, 0, None), row["op_classpath"], row["poke_context"]
    )
    assert [report.outcome for report in kept.poke()] == [Outcome.NOT_LANDED]
    path.touch()
    [report] = kept.poke()
    assert report.outcome is Outcome.LANDED
    pool.settler.settle([Fact(row["id"], 1, 10**13, report.outcome, xcom_value=report.xcom_value)])
    path.unlink()  # it is not asked again
    again, arguments = made(), deferred.value.kwargs
    event = {"value_of": deferred.value.trigger.serialize()[1]["instance_id"]}
    value = as_runner(again, "resume_execution", patch.RESUME, {**arguments, "event": event}, context_of(again))
    assert value == {"found": [f"{path}!"]}


def test_a_task_that_is_not_listed_runs_natively_and_says_so(
    pool: Pool, checks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enable(monkeypatch, "acme_other.checks.never")
    reasons: list[str] = []
    monkeypatch.setattr(deferral, "report_native", lambda _, error: reasons.append(str(error)))
    calls: list[int] = []
    monkeypatch.setattr(PythonSensor, "poke", lambda *_: len(calls) > 1 or calls.append(1))
    sensor = in_dag(PythonSensor, python_callable=checks.never, poke_interval=0.01)
    assert as_runner(sensor, "execute", context_of(sensor)) is None
    assert len(calls) == 2
    assert reasons == [f"its callable {checks.__name__}.never is not in [sensorpool] callables_enabled: add it there"]
