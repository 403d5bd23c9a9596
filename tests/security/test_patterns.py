"""Threat: a class path that a pattern covers, and that is no sensor of its package, is planted in a row."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.service import Service
from sensorpool.model.states import State
from tests.security.canary import MODULE, Canary
from tests.security.planting import plant, rows

PACKAGE = "company_under_attack"
WAITS = """
class Waits:
    def poke(self, context):
        return True
"""
# writes the canary when it is imported
AT_IMPORT = f"import {MODULE}\n{WAITS}"
# writes the canary when it is constructed with a context that names it, or when it is poked
FOREIGN = """
import pathlib


class Foreign:
    def __init__(self, **context):
        self.file = pathlib.Path(context["file"])
        self.file.write_text("constructed")

    def poke(self, context):
        self.file.write_text("poked")
        return True
"""
FILES = f"""
import os, subprocess, foreign_to_company
from os import system as os_system
from foreign_to_company import Foreign
from subprocess import Popen
from pathlib import Path
from harness.scripted import ScriptedSensor
from sensorpool.sensors import PathSensor
{WAITS}
class Client:
    def __init__(self, file, **more):
        open(file, "w").close()


class Runs(Foreign):
    __module__ = "airflow.providers.standard.sensors.bash"


class Shell(Runs): ...


def poke(file, **more):
    open(file, "w").close()


an_object = Waits()
"""
NEVER_IMPORTED = [
    f"{PACKAGE}_2.module.Waits",
    f"{PACKAGE}._hidden.Waits",
    f"{PACKAGE}.__main__.Waits",
    MODULE + ".Canary",
]
REFUSED = {
    "is not enabled": [
        *NEVER_IMPORTED,
        *(
            f"{PACKAGE}.files.{name}"
            for name in ("Foreign", "Popen", "ScriptedSensor", "PathSensor", "Shell", "_Waits")
        ),
        f"{PACKAGE}.Foreign",
    ],
    "has no class": [f"{PACKAGE}.files.{name}" for name in ("os_system", "os", "poke", "an_object", "Missing")],
    "is not a sensor": [f"{PACKAGE}.files.Client"],
    "cannot be imported": [
        *(
            f"{PACKAGE}.files.{path}"
            for path in ("os.system", "Waits.poke", "foreign_to_company.Foreign", "Foreign.Inner")
        ),
        f"{PACKAGE}.broken.Waits",
        f"{PACKAGE}.exits.Waits",
        f"{PACKAGE}.gone.Waits",
        f"{PACKAGE}.foreign_to_company.Foreign",
    ],
}


@pytest.fixture
def company(tmp_path: Path) -> Path:
    """Return the folder of a company's package, beside packages that no entry names."""
    folder = tmp_path / PACKAGE
    (tmp_path / f"{PACKAGE}_2").mkdir()
    (tmp_path / f"{PACKAGE}_2" / "module.py").write_text(AT_IMPORT)
    (tmp_path / "foreign_to_company.py").write_text(FOREIGN)
    folder.mkdir()
    (folder / "__init__.py").write_text("import foreign_to_company\nfrom foreign_to_company import Foreign\n")
    (folder / "files.py").write_text(FILES)
    (folder / "_hidden.py").write_text(AT_IMPORT)
    (folder / "__main__.py").write_text(AT_IMPORT)
    (folder / "broken.py").write_text("class (")
    (folder / "exits.py").write_text(f"{WAITS}raise SystemExit")
    return folder


def test_nothing_gets_in_by_a_pattern_but_the_sensors_of_its_package(
    company: Path, make_service: Callable[..., Service], canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threat `patterns`: a worker whose allowlist has a pattern, and rows of all that its letters cover, and more."""
    monkeypatch.syspath_prepend(str(company.parent))
    service = make_service(infra_failure_window=3, sensors_enabled=f"{PACKAGE}.*")
    database, context = service.pool.database, json.dumps({"file": str(canary.path), "args": canary.command})
    planted = {
        plant(database, path, context, strikes=strikes): (path, why)
        for why, paths in REFUSED.items()
        for path in paths
        for strikes in (0, 1)
    }
    ours = [plant(database, f"{PACKAGE}.files.Waits", "{}", strikes=strikes) for strikes in (0, 1)]
    service.start(**canary.environment)
    states = service.pool.wait([*planted, *ours], 60)
    found = rows(database)
    assert {states[one] for one in planted} == {State.FAILED}
    wrong = [(path, found[one]["reason"]) for one, (path, why) in planted.items() if why not in found[one]["reason"]]
    assert not wrong
    assert {states[one] for one in ours} == {State.SUCCESS}
    assert canary.is_untouched
