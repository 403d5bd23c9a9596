"""Classes that this process refuses: what failed half-way is imported anew, and when it is tried again."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sensorpool.errors import ClassUnavailable
from sensorpool.poke.classes import Classes


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of a company, with modules that need each other."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    folder = tmp_path / "company_unit"
    (folder / "deep").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "deep" / "__init__.py").write_text("import company_unit.deep.base\nfrom company_unit.deep import late\n")
    (folder / "deep" / "base.py").write_text("class Base:\n    pass\n")
    (folder / "deep" / "late.py").write_text("import company_unit.settings\n")
    (folder / "sound.py").write_text("import json\n")
    (folder / "sensors.py").write_text(
        "from company_unit import sound\nfrom company_unit import circular\nimport company_unit.deep\n"
        "class Waits(company_unit.deep.base.Base):\n    def poke(self, context):\n"
        "        return circular.ask()\n"
    )
    (folder / "circular.py").write_text(
        "from company_unit import sensors\ndef ask():\n    return sensors.Waits is not None\n"
    )
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "company_unit"]:
        del sys.modules[name]


def test_an_import_that_failed_half_way_can_be_tried_again(package: Path) -> None:
    path = "company_unit.sensors.Waits"
    classes = Classes([path])
    for _ in range(2):
        with pytest.raises(ClassUnavailable, match=r"company_unit.settings"):
            classes.find(path)
    sound = sys.modules["company_unit.sound"]
    (package / "settings.py").write_text("")
    found = classes.find(path)
    assert found.cls().poke({}) is True
    assert sys.modules["company_unit.circular"].sensors is sys.modules["company_unit.sensors"]
    assert sys.modules["company_unit.deep"].base.Base in found.cls.__mro__
    assert sys.modules["company_unit.sound"] is sound, "what was imported whole stays"


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
