"""Threat: a class path that a pattern covers, and does not stand for, is planted in a row."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.service import Service
from sensorpool.model.states import State
from tests.security.canary import MODULE, Canary
from tests.security.planting import plant, rows

WAITS = """
class Waits:
    def poke(self, context):
        return True
"""
# each module writes the canary when it is imported
COVERED = {
    "shell": (
        "from airflow.providers.standard.sensors.bash import BashSensor\nclass Shell(BashSensor): ...",
        ("Shell", "BashSensor", "Missing"),
    ),
    "client": ("class Client:\n    def get(self): ...\ndef poke(): ...", ("Client", "poke", "canary_at_import")),
    "_hidden": (WAITS, ("Waits",)),
    "private": (WAITS.replace("Waits", "_Waits"), ("_Waits",)),
    "dynamic": (f"class Made(type('Base', (), {{}})):{WAITS.partition(':')[2]}", ("Made",)),
    "broken": (f"{WAITS}\nclass (", ("Waits",)),
}


@pytest.fixture
def company(tmp_path: Path) -> Path:
    """Return the folder of a company's package."""
    folder = tmp_path / "company_under_attack"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "files.py").write_text(WAITS)
    for module, (source, _) in COVERED.items():
        (folder / f"{module}.py").write_text(f"import {MODULE}\n{source}\n")
    return folder


def test_what_a_pattern_covers_and_does_not_stand_for_is_never_imported(
    company: Path, make_service: Callable[..., Service], canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threat `patterns`: a worker whose allowlist has a pattern, and rows of all that is below it."""
    monkeypatch.syspath_prepend(str(company.parent))
    service = make_service(infra_failure_window=3, sensors_enabled="company_under_attack.*")
    paths = [f"company_under_attack.{module}.{name}" for module, (_, names) in COVERED.items() for name in names]
    paths += [f"company_under_attack.{module}" for module in COVERED]
    planted = [plant(service.pool.database, path, "{}", crashes=crashes) for path in paths for crashes in (0, 1)]
    ours = [plant(service.pool.database, "company_under_attack.files.Waits", "{}", crashes=n) for n in (0, 1)]
    service.start(**canary.environment)
    states = service.pool.wait([*planted, *ours], 60)
    found = rows(service.pool.database)
    assert {states[one] for one in planted} == {State.FAILED}
    assert all("is not enabled" in found[one]["reason"] for one in planted)
    assert {states[one] for one in ours} == {State.SUCCESS}
    assert canary.is_untouched
