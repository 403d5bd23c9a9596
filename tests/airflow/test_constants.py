"""A task in ``mode="poke"`` that goes on natively has the constants of the modules that it started with."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow.providers.standard")

from sensorpool import Settings
from sensorpool.airflow.compat.exceptions import TaskDeferred
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.result import InstanceResult
from sensorpool.airflow.task import deferral, patch, saved_attributes
from tests.airflow.running import as_runner, context_of, in_dag
from tests.airflow.versions import deserialize, serialize

_SENSORS = """
import datetime as dt, os, pathlib, socket, random
import pendulum
from airflow.sdk.bases.sensor import BaseSensorOperator
from acme_constants import config
from acme_constants.config import CUTOFF, cutoff

SEEN = []
class Partner(BaseSensorOperator):
    days = ["a"]
    def __init__(self, *, path="p", **kwargs):
        super().__init__(**kwargs)
        self.path = path
    def poke(self, context):
        globals()["SEEN"].append((CUTOFF, cutoff(), config.ROOT, config.Settings.bucket, list(self.days), config.OTHER))
        return len(globals()["SEEN"]) > 1
class Declared(Partner):
    poke_context_fields = ("path",)
"""
_CONFIG = """
import datetime as dt, pathlib, pendulum, threading
CUTOFF = {cutoff}
ROOT = {root}
OTHER = {other}
class Settings:
    bucket = {bucket}
def cutoff():
    return CUTOFF
"""
OLD = {"cutoff": "dt.datetime(2026, 11, 2)", "root": "'/a'", "bucket": "'old'", "other": "1"}
NEW = {"cutoff": "dt.datetime(2026, 11, 3)", "root": "'/b'", "bucket": "'new'", "other": "2"}

Imports = Callable[..., Any]


@pytest.fixture
def imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Imports]:
    """Import a company's modules as another process does; return its module of sensors."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    package = tmp_path / "acme_constants"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "sensors.py").write_text(_SENSORS)

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == package.name]:
            del sys.modules[name]

    def again(**said: str) -> Any:
        (package / "config.py").write_text(_CONFIG.format(**said))
        forget()
        importlib.invalidate_caches()
        return importlib.import_module("acme_constants.sensors")

    settings = Settings.load(sensors_enabled="acme_constants.sensors.Partner,acme_constants.sensors.Declared")
    monkeypatch.setattr(deferral, "pool", lambda: SimpleNamespace(settings=settings))
    monkeypatch.setattr(deferral, "register", lambda _: SimpleNamespace(id=1, opened=True))
    monkeypatch.setattr(deferral, "airflow_settings", lambda: AirflowSettings(enabled=True))
    monkeypatch.setattr(patch, "is_enabled", lambda: True)
    patch.install()
    yield again
    forget()


def leaves(sensor: Any) -> dict[str, Any]:
    with pytest.raises(TaskDeferred) as deferred:
        as_runner(sensor, "execute", context_of(sensor))
    kept: dict[str, Any] = deserialize(json.loads(json.dumps(serialize(deferred.value.kwargs))))
    return kept


def goes_on(module: Any, kept: dict[str, Any], cls: str = "Partner", **arguments: Any) -> Any:
    """Go on natively in a process that has imported a module; return what is seen there."""
    module.SEEN.append(None)
    sensor = in_dag(getattr(module, cls), **arguments)
    event = InstanceResult.handed_back("because").as_payload()
    as_runner(sensor, "resume_execution", patch.RESUME, {"event": event, **kept}, context_of(sensor))
    return module.SEEN[-1]


def test_what_an_import_works_out(imports: Imports, capsys: pytest.CaptureFixture[str]) -> None:
    old = imports(**OLD)
    kept = leaves(in_dag(old.Partner))
    new = imports(**NEW)
    new.Partner.days = ["b"]
    assert new is not old
    assert goes_on(new, kept) == old.SEEN[0]
    lines = [line for line in capsys.readouterr().out.splitlines() if "differs in this process" in line]
    assert len(lines) == 1
    for name in ("sensors.CUTOFF", "config.CUTOFF", "config.ROOT", "config.Settings.bucket", "sensors.Partner.days"):
        assert f"acme_constants.{name}" in lines[0]


def test_what_is_the_same_is_not_said(imports: Imports, capsys: pytest.CaptureFixture[str]) -> None:
    kept = leaves(in_dag(imports(**OLD).Partner))
    goes_on(imports(**OLD), kept)
    assert "differs in this process" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dt.date(2026, 11, 2)", "dt.date(2026, 11, 3)"),
        ("pendulum.datetime(2026, 11, 2, tz='Europe/Berlin')", "pendulum.datetime(2026, 11, 3)"),
        ("None", "1"),
        ("1", "1.0"),
        ("[1, {'a': (2, {3})}]", "[1, {'a': (2, {4})}]"),
        ("pathlib.PurePosixPath('a')", "pathlib.PurePosixPath('b')"),
    ],
)
def test_each_plain_kind(imports: Imports, old: str, new: str) -> None:
    before = imports(**OLD | {"other": old})
    kept = leaves(in_dag(before.Partner))
    found = goes_on(imports(**OLD | {"other": new}), kept)
    assert repr(found) == repr(before.SEEN[0])


@pytest.mark.parametrize(
    "other", ["threading.Event", "object()", "{1: object()}", "'x' * 5_000", "list(range(1_000))", "len"]
)
def test_what_is_not_plain_or_large_is_that_of_the_moment(imports: Imports, other: str) -> None:
    kept = leaves(in_dag(imports(**OLD | {"other": other}).Partner))
    assert "config:OTHER" not in kept["as_started"]
    assert len(kept["as_started"]) <= 4_096
    assert goes_on(imports(**OLD | {"other": "7"}), kept)[-1] == 7


def test_no_secret_is_kept(imports: Imports) -> None:
    secrets = {"root": "'postgres://us:Canary4Url@h/db'", "other": "{'api_key': 'Canary4Named'}"}
    kept = leaves(in_dag(imports(**OLD | secrets).Partner))
    assert "Canary" not in json.dumps(kept)
    assert "config:CUTOFF" in kept["as_started"]


def test_in_reschedule_mode_each_poke_imports_anew(imports: Imports) -> None:
    kept = leaves(in_dag(imports(**OLD).Partner))
    new = imports(**NEW)
    goes_on(new, kept, mode="reschedule")
    assert new.CUTOFF == new.config.CUTOFF
    assert new.CUTOFF.day == 3
    assert "as_started" not in leaves(in_dag(imports(**OLD).Partner, mode="reschedule"))


def test_what_says_itself_what_its_answer_depends_on(imports: Imports) -> None:
    kept = leaves(in_dag(imports(**OLD).Declared))
    assert json.loads(kept["as_started"])["constants"] == {}


@pytest.mark.parametrize(
    "constants",
    [
        {"os:sep": "x"},
        {"acme_constants.config:Settings": 1},
        {"acme_constants.sensors:Partner": 1},
        {"acme_constants.sensors:not_there": 1},
        {"acme_constants.config:OTHER": {"__type__": "another version's"}},
        {"": 1},
        7,
        None,
    ],
)
def test_nothing_else_is_put_anywhere(imports: Imports, constants: Any) -> None:
    """What Airflow's database holds may be of another version, or by another hand."""
    new = imports(**NEW)
    before = {name: dict(vars(sys.modules[name])) for name in ("os", "acme_constants.config", new.__name__)}
    told = json.dumps({"values": {}, "digests": {}, "constants": constants})
    assert saved_attributes.restore(in_dag(new.Partner), told) is None
    assert {name: dict(vars(sys.modules[name])) for name in before} == before


def test_what_the_version_before_has_left(imports: Imports) -> None:
    kept = leaves(in_dag(imports(**OLD).Partner))
    told = json.loads(kept["as_started"])
    del told["constants"]
    assert goes_on(imports(**NEW), kept | {"as_started": json.dumps(told)})[2] == "/b"
