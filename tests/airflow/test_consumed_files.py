"""A poke that moves or removes a file goes back to its workers before that: each task takes its own."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

pytest.importorskip("airflow")

from sensorpool.airflow.pool.adapters.sensor import adapt
from sensorpool.errors import HandBack
from tests.airflow.running import Flag


@pytest.fixture
def inbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is no temporary one."""
    for name in ("inbox", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "inbox"


def poked(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> Any:
    monkeypatch.setattr(Flag, "answers", {"x": lambda *_: act() or True})
    return adapt(Flag)(flag="x").poke({})


TAKES: dict[str, Callable[[Path], Any]] = {
    "rename": lambda path: os.rename(path, f"{path}.done"),
    "replace": lambda path: os.replace(path, f"{path}.done"),
    "pathlib": lambda path: path.rename(f"{path}.done"),
    "unlink": lambda path: path.unlink(),
    "remove": lambda path: os.remove(os.fsencode(path)),
    "move": lambda path: shutil.move(path, f"{path}.done"),
    "tree": lambda path: shutil.rmtree(path.parent),
}


@pytest.mark.parametrize("take", TAKES)
def test_a_file_is_there_when_its_task_is_back_on_its_worker(
    inbox: Path, monkeypatch: pytest.MonkeyPatch, take: str
) -> None:
    path = inbox / "orders.csv"
    path.touch()
    with pytest.raises(HandBack, match=r"its poke (moves|removes) .*: each task that waits for it has to take its own"):
        poked(monkeypatch, lambda: TAKES[take](path))
    assert path.exists()


def test_a_poke_that_catches_the_refusal_goes_back(inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def take() -> None:
        try:
            path.unlink()
        except:  # noqa: E722
            return

    path = inbox / "orders.csv"
    path.touch()
    with pytest.raises(HandBack, match="its poke removes"):
        poked(monkeypatch, take)


def test_a_temporary_file_is_its_own(inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def downloads() -> None:
        with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile():
            (Path(folder) / "part").touch()
            os.rename(f"{folder}/part", f"{folder}/whole")

    assert poked(monkeypatch, downloads) is True
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


def test_a_file_that_is_not_there_can_be_asked_for_by_moving_it(inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def claims() -> None:
        with pytest.raises(FileNotFoundError):
            os.rename(inbox / "orders.csv", inbox / "mine")

    assert poked(monkeypatch, claims) is True


def test_what_a_library_keeps_is_its_own(inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def renews(path: str) -> None:
        os.replace(f"{path}.new", path)

    (inbox / "cache.new").touch()
    of_library = FunctionType(renews.__code__, {"__name__": "pytest.cacheprovider", "os": os})
    assert poked(monkeypatch, lambda: of_library(str(inbox / "cache"))) is True
    assert (inbox / "cache").exists()


def test_outside_of_a_poke_nothing_is_refused(inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert poked(monkeypatch, lambda: None) is True
    (inbox / "orders.csv").touch()
    (inbox / "orders.csv").unlink()
