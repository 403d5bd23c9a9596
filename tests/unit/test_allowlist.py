"""The allowlist of a process: patterns are resolved before anything is imported, and only then is a class found."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.until import until
from sensorpool import Settings
from sensorpool.cli import main
from sensorpool.client.pool import Pool
from sensorpool.config import allowlist
from sensorpool.config.allowlist import Allowlist
from sensorpool.config.defaults import BUILT_IN_SENSORS
from sensorpool.errors import ClassUnavailable
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report
from sensorpool.poke.child import Suspect
from sensorpool.poke.classes import Classes
from sensorpool.poke.isolated_lane import IsolatedLane
from sensorpool.poke.poker import Poker
from sensorpool.service.refusals import doubts_of
from tests.support.builders import due_group
from tests.support.parsing import mismatch

WAITS = """
class Waits:
    def __init__(self, name=""):
        pass

    def poke(self, context):
        return True

class _Private(Waits): ...

class Dynamic(make()):
    def poke(self): ...
"""
PATTERN = "company_of_patterns.*"
CLASS = "company_of_patterns.files.Waits"


@pytest.fixture
def company(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a package of a company; its module fails when it is imported."""
    folder = tmp_path / "company_of_patterns"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "files.py").write_text(WAITS.replace("class Dynamic(make())", "class Dynamic(type('B', (), {}))"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in [name for name in sys.modules if name.startswith("company_of_patterns")]:
        monkeypatch.delitem(sys.modules, name)
    return folder


def is_imported() -> bool:
    return any(name.startswith("company_of_patterns") for name in sys.modules)


def test_a_pool_has_the_exact_classes_before_it_imports_one(company: Path) -> None:
    poker = Poker(Settings.load(sensors_enabled=PATTERN))
    assert poker.classes.is_listed(CLASS)
    assert not poker.classes.is_listed("company_of_patterns.files._Private")
    assert not is_imported()
    assert poker.classes.find(CLASS).cls.__name__ == "Waits"
    assert is_imported()
    poker.close()


@pytest.mark.parametrize("path", ["company_of_patterns.files.os", "company_of_patterns.files._Private", "os.system"])
def test_what_a_pattern_does_not_stand_for_is_not_imported(company: Path, path: str) -> None:
    (company / "__init__.py").write_text("raise SystemExit('imported')")
    settings = Settings.load(sensors_enabled=PATTERN)
    poker = Poker(settings)
    for classes in (poker.classes, Classes(allowlist.of(settings.sensors_enabled))):
        with pytest.raises(ClassUnavailable, match=f"^{path} is not enabled: add it to SENSORPOOL_SENSORS_ENABLED"):
            classes.find(path)
    assert not is_imported()
    poker.close()


def test_a_file_that_comes_later_is_of_no_use_to_a_pool_that_runs(company: Path) -> None:
    """A pool's allowlist is fixed when it starts; a new process has the new class."""
    settings = Settings.load(sensors_enabled=PATTERN)
    poker = Poker(settings)
    (company / "late.py").write_text("class Late:\n    def poke(self): ...\n")
    assert not poker.classes.is_listed("company_of_patterns.late.Late")
    code = "from sensorpool.poke.poker import Poker; from sensorpool import Settings; import sys\n"
    code += "sys.exit(Poker(Settings.load()).classes.is_listed('company_of_patterns.late.Late'))"
    environment = os.environ | {"PYTHONPATH": str(company.parent), "SENSORPOOL_SENSORS_ENABLED": PATTERN}
    assert subprocess.run([sys.executable, "-c", code], env=environment, timeout=60).returncode == 1
    poker.close()


def test_the_reason_names_the_pattern(company: Path) -> None:
    classes = Classes(Allowlist((PATTERN,)))
    with pytest.raises(ClassUnavailable) as refused:
        classes.allow("company_of_patterns.files.Dynamic")
    assert str(refused.value) == (
        "company_of_patterns.files.Dynamic is not enabled: add it to SENSORPOOL_SENSORS_ENABLED "
        "(company_of_patterns.* does not stand for it: a base of it is worked out when it is imported)"
    )
    of_gone = "there is no module company_of_patterns.gone here; install it, or name its folder in PYTHONPATH"
    for path, why in {
        "company_of_patterns.gone.X": of_gone,
        "company_of_patterns.files.Gone": "company_of_patterns.files does not define it",
        "company_of_patterns.files._Private": "a name that begins with an underscore is not public",
    }.items():
        with pytest.raises(ClassUnavailable, match=why):
            classes.allow(path)


def test_a_process_reads_the_sources_once(company: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.load(sensors_enabled=PATTERN)
    first = Poker(settings)
    monkeypatch.setattr("sensorpool.config.allowlist.Packages", None)  # it would fail
    second = Poker(settings)
    assert second.classes.is_listed(CLASS)
    assert first.classes.is_listed(CLASS)
    first.close()
    second.close()


def test_a_forked_process_has_an_allowlist_of_its_own(company: Path) -> None:
    settings = Settings.load(sensors_enabled=PATTERN)
    ours = allowlist.of(settings.sensors_enabled)
    assert CLASS in ours.resolved()
    (company / "late.py").write_text("class Late:\n    def poke(self): ...\n")
    if (child := os.fork()) == 0:
        os._exit("company_of_patterns.late.Late" in allowlist.of(settings.sensors_enabled).resolved())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert allowlist.of(settings.sensors_enabled) is ours


def test_without_a_pattern_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sensorpool.config.allowlist.Packages", None)
    monkeypatch.setattr("sensorpool.config.allowlist.catalog_of", None)
    listed = Allowlist(BUILT_IN_SENSORS)
    assert listed.resolved() == set(BUILT_IN_SENSORS)
    assert "os.system" not in listed
    assert listed.why_not("os.system") == ""
    assert not list(listed.doubts())


def test_neither_settings_nor_a_pool_that_is_looked_at_resolve(company: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sensorpool.config.allowlist.Packages", None)
    pool = Pool(Settings.load(sensors_enabled=PATTERN, database_url="sqlite://"))
    assert pool.settings.shown()["sensors_enabled"] == (PATTERN,)
    pool.close()


def test_a_registration_reads_only_what_its_class_takes(company: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sensorpool.config.sources import module_names

    (company / "other.py").write_text("class Other:\n    def poke(self): ...\n")
    read: list[str] = []
    facts_of = module_names._facts.__wrapped__
    monkeypatch.setattr(
        module_names, "_facts", lambda module, stamp: read.append(module.name) or facts_of(module, stamp)
    )
    assert CLASS in Allowlist((PATTERN,))
    assert set(read) == {"company_of_patterns.files"}


def test_our_own_sensors_are_a_list() -> None:
    for pattern in ("sensorpool.*", "sensorpool.sensors.*"):
        assert Allowlist((pattern,)).resolved() == set(BUILT_IN_SENSORS)
    assert "sensorpool.testing.Scripted" not in Allowlist(("sensorpool.*",))
    [line] = Allowlist(("sensorpool.testing.*",)).doubts()
    assert "stands for no class: docs/reference.md lists none below it as poolable" in line


def test_a_class_that_is_derived_from_ours_is_a_sensor(company: Path) -> None:
    source = "from sensorpool.sensors import PathSensor\nclass Mine(PathSensor): ..."
    (company / "mine.py").write_text(source)
    assert "company_of_patterns.mine.Mine" in Allowlist((PATTERN,))


def test_a_child_that_pokes_apart_gets_the_exact_classes(company: Path) -> None:
    """The child pokes a class that a pattern stands for, and refuses another one that it covers."""
    settings = Settings.load(sensors_enabled=PATTERN, poke_timeout=30.0)
    reports: list[Report] = []
    lane = IsolatedLane(settings, reports.extend, lambda _: None, 2, lambda *_: None)
    private = "company_of_patterns.files._Private"
    asked = [Suspect(due_group(number), path, "{}", alone=False) for number, path in enumerate((CLASS, private))]
    assert lane.offer(asked) == 2
    until("both are reported", lambda: len(reports) == 2, 60)
    assert {each.group.id: each.outcome for each in reports} == {0: Outcome.LANDED, 1: Outcome.CANNOT_POKE}
    assert not is_imported(), "in this process"


def test_a_file_that_cannot_be_parsed_is_left_out(company: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (company / "unparsed.py").write_text("class Unparsed:\n    def poke(self, context): ...\n")
    with monkeypatch.context() as patch:
        patch.setattr("ast.parse", mismatch)
        said = "\n".join(Allowlist((PATTERN,)).doubts())
    assert "company_of_patterns.unparsed" in said
    assert "SystemError: AST constructor recursion depth mismatch" in said


def test_the_start_of_a_worker_tells_what_stands_for_nothing(company: Path) -> None:
    (company / "broken.py").write_text("class (")
    settings = Settings.load(sensors_enabled=f"{PATTERN},not_here_at_all.*,{CLASS}")
    assert doubts_of(settings) == [
        "SENSORS_ENABLED: company_of_patterns.* leaves out what cannot be read: company_of_patterns.broken "
        "(SyntaxError in line 1: invalid syntax)",
        "SENSORS_ENABLED: not_here_at_all.* stands for no class here: there is no not_here_at_all; "
        "install it, or mend the name",
    ]


def test_doctor_shows_what_a_pattern_stands_for(company: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENSORPOOL_SENSORS_ENABLED", f"{PATTERN},gone_at_all.*")
    monkeypatch.setenv("SENSORPOOL_DATABASE_URL", f"sqlite:///{tmp_path / 'pool.db'}")
    said = CliRunner().invoke(main.main, ["doctor"]).stdout.splitlines()
    assert "ok       pattern: company_of_patterns.* stands for 1 class: Waits" in said
    assert f"ok       sensor: {CLASS}: poke(context)" in said
    assert (
        "ok       pattern: company_of_patterns.* leaves out company_of_patterns.files.Dynamic, which needs its exact "
        "name: a base of it is worked out when it is imported"
    ) in said
    told = "there is no gone_at_all; install it, or mend the name"
    assert f"WARNING  pattern: gone_at_all.* stands for no class here: {told}" in said
    findings = json.loads(CliRunner().invoke(main.main, ["doctor", "--json"]).stdout)
    assert [each["classes"] for each in findings if "classes" in each] == [[CLASS]]


def test_doctor_names_some_of_many_classes(company: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (company / "files.py").write_text("".join(f"class S{n}:\n    def poke(self, context): ...\n" for n in range(5)))
    monkeypatch.setenv("SENSORPOOL_SENSORS_ENABLED", f"{PATTERN},not_here_either.*")  # not known of another test
    monkeypatch.setenv("SENSORPOOL_DATABASE_URL", f"sqlite:///{tmp_path / 'pool.db'}")
    said = CliRunner().invoke(main.main, ["doctor"]).stdout.splitlines()
    told = "ok       pattern: company_of_patterns.* stands for 5 classes: S0, S1, S2, and 2 more (--json names them)"
    assert told in said
    findings = json.loads(CliRunner().invoke(main.main, ["doctor", "--json"]).stdout)
    assert [len(each["classes"]) for each in findings if "classes" in each] == [5]


def test_doctor_says_that_a_class_of_a_pattern_cannot_be_imported(
    company: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (company / "__init__.py").write_text("raise RuntimeError('not today')")
    monkeypatch.setenv("SENSORPOOL_SENSORS_ENABLED", PATTERN)
    monkeypatch.setenv("SENSORPOOL_DATABASE_URL", f"sqlite:///{tmp_path / 'pool.db'}")
    said = CliRunner().invoke(main.main, ["doctor"]).stdout
    assert f"WARNING  sensor: {CLASS} cannot be imported: RuntimeError: not today" in said
