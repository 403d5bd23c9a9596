"""The allowlist: a class path is judged as text before its import, and the class that is found after it."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.until import until
from sensorpool import Settings
from sensorpool.admin.allowed_classes import doubt_about
from sensorpool.cli import main
from sensorpool.config.allowlist import Allowlist
from sensorpool.config.defaults import BUILT_IN_SENSORS
from sensorpool.errors import ClassUnavailable
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report
from sensorpool.poke.child import Suspect
from sensorpool.poke.classes import Classes
from sensorpool.poke.isolated_lane import IsolatedLane
from tests.support.builders import due_group

PACKAGE = "company_of_patterns"
PATTERN = f"{PACKAGE}.*"
CLASS = f"{PACKAGE}.files.Waits"
NOT_ENABLED = "is not enabled: add it to SENSORPOOL_SENSORS_ENABLED"
FILES = f"""
import os
from os import system
from pathlib import Path
from subprocess import Popen
import sensorpool
from sensorpool.sensors import PathSensor
from harness.scripted import ScriptedSensor
from {PACKAGE}._base import Hidden


class Waits:
    def __init__(self, name=""):
        pass

    def poke(self, context):
        return True


class Mine(PathSensor): ...


class Dynamic(type("Base", (Waits,), {{}})): ...


class _Private(Waits): ...


class Client:
    def get(self): ...


class FakeMany:
    poke_many = 3


@sensorpool.sensor
def arrived(partner: str) -> bool:
    return True


def poke(context): ...


an_object = Waits()
"""


@pytest.fixture
def company(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a package of a company."""
    folder = tmp_path / PACKAGE
    folder.mkdir()
    (folder / "__init__.py").write_text("from .files import Waits")
    (folder / "files.py").write_text(FILES)
    (folder / "_base.py").write_text("class Hidden:\n    def poke(self, context): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        monkeypatch.delitem(sys.modules, name)
    return folder


def is_imported() -> bool:
    return any(name.startswith(PACKAGE) for name in sys.modules)


def why_refused(path: str, *entries: str) -> str:
    with pytest.raises(ClassUnavailable) as refused:
        Classes(entries or (PATTERN,)).find(path)
    return str(refused.value)


@pytest.mark.parametrize(
    "name", ["files.Waits", "files.Mine", "files.Dynamic", "files.arrived", "Waits", "files.Hidden"]
)
def test_a_pattern_enables_the_sensors_below_it(company: Path, name: str) -> None:
    """Those that a module hands on from another one of the package, too."""
    classes = Classes([PATTERN])
    assert classes.is_listed(f"{PACKAGE}.{name}")
    assert not is_imported()
    found = classes.find(f"{PACKAGE}.{name}").cls
    assert found.__module__.startswith(PACKAGE)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("os.system", ""),
        (f"{PACKAGE}_2.files.Waits", ""),
        (f"not_{CLASS}", ""),
        (f"{PACKAGE}.files._Private", "a name that begins with an underscore is not public"),
        (f"{PACKAGE}._base.Hidden", "a name that begins with an underscore is not public"),
        (f"{PACKAGE}.__main__.Waits", "a name that begins with an underscore is not public"),
    ],
)
def test_what_no_entry_enables_is_not_imported(company: Path, path: str, why: str) -> None:
    reason = f" ({PATTERN} does not enable it: {why})" if why else ""
    assert why_refused(path) == f"{path} {NOT_ENABLED}{reason}"
    assert not is_imported()


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("PathSensor", "sensorpool.sensors.PathSensor"),
        ("ScriptedSensor", "harness.scripted.ScriptedSensor"),
        ("Popen", "subprocess.Popen"),
    ],
)
def test_a_class_from_elsewhere_does_not_get_in_by_a_module_that_imports_it(company: Path, name: str, own: str) -> None:
    path = f"{PACKAGE}.files.{name}"
    assert why_refused(path) == f"{path} {NOT_ENABLED} (it is {own}, which needs an entry of its own)"


def test_a_class_from_elsewhere_that_is_listed_itself_may_be_named_so(company: Path) -> None:
    path = f"{PACKAGE}.files.ScriptedSensor"
    own = "harness.scripted.ScriptedSensor"
    assert Classes([PATTERN, own]).find(path).cls.__name__ == "ScriptedSensor"
    assert Classes([path]).find(path).cls.__name__ == "ScriptedSensor", "an exact entry is the operator's word"


@pytest.mark.parametrize("name", ["system", "os", "poke", "an_object", "Missing"])
def test_what_is_no_class_is_refused(company: Path, name: str) -> None:
    assert why_refused(f"{PACKAGE}.files.{name}") == f"{PACKAGE}.files has no class {name}"


@pytest.mark.parametrize("name", ["Client", "FakeMany"])
def test_a_class_that_cannot_be_poked_is_refused(company: Path, name: str) -> None:
    path = f"{PACKAGE}.files.{name}"
    assert why_refused(path) == f"{path} is not a sensor: it has neither poke nor poke_many"


PROVIDERS = """
class BashSensor:
    __module__ = "airflow.providers.standard.sensors.bash"  # as if it were imported from there

    def poke(self, context): ...


class S3KeySensor(BashSensor):  # what a reviewed class is derived from does not matter
    __module__ = "airflow.providers.amazon.aws.sensors.s3"


class Mixin: ...


class Shell(Mixin, BashSensor): ...


class DeepShell(Shell): ...


class Key(Mixin, S3KeySensor): ...
"""


def test_a_pattern_of_a_company_enables_no_class_that_runs_commands(company: Path) -> None:
    (company / "provider.py").write_text(PROVIDERS)
    bash = "airflow.providers.standard.sensors.bash.BashSensor"
    for name in ("Shell", "DeepShell"):
        path = f"{PACKAGE}.provider.{name}"
        why = f"it is derived from {bash}, so it needs its exact name"
        assert why_refused(path) == f"{path} {NOT_ENABLED} ({why})"
        assert Classes([PATTERN, path]).find(path).cls.__name__ == name
    why = f"it is {bash}, which needs an entry of its own"
    assert why in why_refused(f"{PACKAGE}.provider.BashSensor", PATTERN, "airflow.providers.*")
    assert Classes([PATTERN]).find(f"{PACKAGE}.provider.Key").cls.__name__ == "Key"


@pytest.mark.parametrize("path", [f"{PACKAGE}.files.os.system", f"{CLASS}.poke", f"{PACKAGE}.gone.X"])
def test_what_is_no_module_is_refused(company: Path, path: str) -> None:
    assert why_refused(path).startswith(f"{path} cannot be imported: ModuleNotFoundError: ")


def test_without_a_pattern_no_catalog_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sensorpool.config.allowlist.catalog_of", None)
    listed = Allowlist(BUILT_IN_SENSORS)
    assert listed.named() == set(BUILT_IN_SENSORS)
    assert "os.system" not in listed
    assert listed.why_not("os.system") == ""


def test_our_own_sensors_are_a_list() -> None:
    for pattern in ("sensorpool.*", "sensorpool.sensors.*"):
        listed = Allowlist((pattern,))
        assert listed.named() == set(BUILT_IN_SENSORS)
        assert all(path in listed for path in BUILT_IN_SENSORS)
    assert "sensorpool.testing.TestPool" not in Allowlist(("sensorpool.*",))
    doubt = doubt_about("sensorpool.testing.*")
    assert doubt is not None
    assert "stands for no class: docs/reference.md lists none below it as poolable" in doubt


def test_a_child_that_pokes_apart_has_the_same_allowlist(company: Path) -> None:
    """The child pokes a class that a pattern enables, and refuses others that it covers."""
    settings = Settings.load(sensors_enabled=PATTERN, poke_timeout=30.0)
    reports: list[Report] = []
    lane = IsolatedLane(settings, reports.extend, 3)
    paths = CLASS, f"{PACKAGE}.files._Private", f"{PACKAGE}.files.ScriptedSensor"
    asked = [Suspect(due_group(number), path, "{}", alone=False) for number, path in enumerate(paths)]
    lane.offer(asked)
    until("all are reported", lambda: len(reports) == 3, 60)
    refused = Outcome.CANNOT_POKE
    assert {each.group.id: each.outcome for each in reports} == {0: Outcome.LANDED, 1: refused, 2: refused}
    assert not is_imported(), "in this process"


def test_doctor_imports_the_package_of_a_pattern(
    company: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (company / "broken.py").write_text("raise SystemExit('not today')")
    patterns = f"{PATTERN},gone_at_all.*,{PACKAGE}.gone.*,{PACKAGE}.broken.*,sensorpool.sensors.*"
    monkeypatch.setenv("SENSORPOOL_SENSORS_ENABLED", patterns)
    monkeypatch.setenv("SENSORPOOL_DATABASE_URL", f"sqlite:///{tmp_path / 'pool.db'}")
    said = CliRunner().invoke(main.main, ["doctor"]).stdout.splitlines()
    assert f"ok       pattern: {PATTERN} enables the sensors that are defined in this package and below" in said
    gone = "there is no gone_at_all here; install it, or mend the name"
    assert f"WARNING  pattern: gone_at_all.* enables no class: {gone}" in said
    no_module = f"ModuleNotFoundError: No module named '{PACKAGE}.gone'"
    assert f"WARNING  pattern: {PACKAGE}.gone.* enables no class: {no_module}" in said
    assert f"WARNING  pattern: {PACKAGE}.broken.* enables no class: SystemExit: not today" in said
    ours = "sensorpool.sensors.* stands for 4 classes: HttpSensor, PathSensor, SqlSensor, and 1 more"
    assert f"ok       pattern: {ours} (--json names them)" in said
    findings = json.loads(CliRunner().invoke(main.main, ["doctor", "--json"]).stdout)
    assert [each["classes"] for each in findings if "classes" in each] == [sorted(BUILT_IN_SENSORS)]
