"""Classes that this process refuses, and when they are tried again."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sensorpool.errors import ClassUnavailable
from sensorpool.poke.classes import Classes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder from which Python imports; what it has imported is forgotten."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("company_unit")]:
        del sys.modules[name]


def test_an_import_that_failed_is_made_again_once_what_it_needs_is_there(folder: Path) -> None:
    path = "company_unit_sensors.Waits"
    (folder / "company_unit_sensors.py").write_text(
        "import company_unit_settings\nclass Waits:\n    def poke(self, context):\n        return True\n"
    )
    classes = Classes([path])
    with pytest.raises(ClassUnavailable, match="company_unit_settings"):
        classes.find(path)
    (folder / "company_unit_settings.py").write_text("")
    importlib.invalidate_caches()
    assert classes.find(path).cls().poke({}) is True


def test_a_class_that_is_refused_is_not_tried_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("sensorpool.poke.classes.time", SimpleNamespace(monotonic=lambda: now))
    classes = Classes(["no_such_module.Class"], retry_after=10)
    waits = []
    for _ in range(8):
        with pytest.raises(ClassUnavailable):
            classes.find("no_such_module.Class")
        began = now
        while classes.refusal("no_such_module.Class") is not None:
            now += 1
        waits.append(now - began)
    assert waits == [10, 20, 40, 80, 160, 300, 300, 300]
    assert Classes(["no_such_module.Class"]).refusal("no_such_module.Class") is None, "it was not tried"
    assert "is not enabled" in str(Classes([]).refusal("no_such_module.Class"))


def test_no_more_is_remembered_than_so_much() -> None:
    classes = Classes([], retry_after=10)
    for number in range(1_100):
        with pytest.raises(ClassUnavailable):
            classes.find(f"planted.by.Somebody{number}")
    assert len(classes.refusals) == 1_000
