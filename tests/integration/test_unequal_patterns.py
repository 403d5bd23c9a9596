"""Two workers with one pattern and different installs: the one that lacks a class leaves its groups to the other."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.service import Service
from harness.until import until
from sensorpool.errors import ClassUnavailable
from sensorpool.model.states import State

OLD = """
import pathlib


class Waits:
    def __init__(self, path):
        self.path = pathlib.Path(path)

    def poke(self, context):
        with open(f"{self.path}.{VERSION}", "a") as pokes:
            pokes.write("x")
        return self.path.exists()
"""
NEW = OLD + "\n\nclass Arrives(Waits): ...\n"
PATTERN = "company_in_two_versions.*"
MODULE = "company_in_two_versions.files"
CLASS = f"{MODULE}.Arrives"


def install(folder: Path, version: str, source: str) -> str:
    """Install a version of the company's package; return the folder for ``PYTHONPATH``."""
    package = folder / version / "company_in_two_versions"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "files.py").write_text(f"VERSION = {version!r}\n{source}")
    return str(folder / version)


@pytest.fixture
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name in (MODULE, MODULE.partition(".")[0]):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return {"old": install(tmp_path, "old", OLD), "new": install(tmp_path, "new", NEW)}


def test_a_worker_with_an_older_package_leaves_the_class_to_the_other(
    make_service: Callable[..., Service], versions: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(versions["new"])
    service, path = make_service(sensors_enabled=PATTERN), os.environ.get("PYTHONPATH", "")
    service.worker(PYTHONPATH=os.pathsep.join([versions["old"], path]))
    service.worker(PYTHONPATH=os.pathsep.join([versions["new"], path]))
    service.beat()
    until("the first tick of every range", service.is_ready)
    flags = [tmp_path / f"flag{n}" for n in range(6)]
    ids = [service.pool.register(CLASS, {"path": str(flag)}).id for flag in flags]
    both = service.pool.register(CLASS.replace("Arrives", "Waits"), {"path": str(tmp_path / "both")}).id
    told = f"{MODULE} has no class Arrives"
    until("the line in its log", lambda: told in (service.folder / "worker-0.log").read_text(), 60)
    until("pokes of the other", lambda: all(Path(f"{flag}.new").exists() for flag in flags))
    for flag in [*flags, tmp_path / "both"]:
        flag.touch()
    assert set(service.pool.wait([*ids, both], 60).values()) == {State.SUCCESS}
    assert not list(tmp_path.glob("flag*.old"))


def test_a_registrant_that_lacks_the_class_is_refused(
    make_service: Callable[..., Service], versions: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(versions["old"])
    pool = make_service(sensors_enabled=PATTERN).pool
    with pytest.raises(ClassUnavailable, match=f"^{MODULE} has no class Arrives$"):
        pool.register(CLASS, {"path": str(tmp_path)})
    assert pool.register(CLASS.replace("Arrives", "Waits"), {"path": str(tmp_path / "flag")}).id
