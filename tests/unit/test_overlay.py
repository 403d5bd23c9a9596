"""Which file's Celery settings are laid over the package's; the file of another application is not run."""

import sys
from pathlib import Path

import pytest

from sensorpool.admin import doctor
from sensorpool.config.settings import Settings
from sensorpool.errors import SettingsError
from sensorpool.publish import overlay
from sensorpool.service.app import make_app

MARKED = "SENSORPOOL_CELERY_CONFIG = True\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, which is not on the Python path, as for a console script."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path and not Path(path, "celeryconfig.py").exists()])
    monkeypatch.setitem(sys.modules, "celeryconfig", None)
    return here


def test_the_working_directory_s_is_read(folder: Path) -> None:
    (folder / "celeryconfig.py").write_text(f"{MARKED}worker_concurrency = 3\nworker_concurency = 4\n")
    found = overlay.read()
    assert found.where == str(folder / "celeryconfig.py")
    assert found.values["worker_concurrency"] == 3
    assert make_app(Settings.load(redis_url="redis://127.0.0.1:1/0")).conf.worker_concurrency == 3
    said = [each.said for each in doctor.examine(Settings.load(database_url="sqlite://")) if each.subject == "celery"]
    assert said == [f"{found.where} is laid over the package's Celery settings (for what starts in {folder})"]


def test_the_python_path_s_is_read_where_the_working_directory_has_none_of_ours(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "celeryconfig.py").write_text("worker_concurrency = 3\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "celeryconfig.py").write_text(f"SENSORPOOL_CELERY_CONFIG: bool = True\nworker_concurrency = {1 + 4}\n")
    monkeypatch.syspath_prepend(str(elsewhere))
    assert overlay.read().values["worker_concurrency"] == 5


def test_a_named_module_is_found_in_the_working_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "named_overlay_of_test.py").write_text("worker_concurrency = 3\n")
    monkeypatch.setenv("SENSORPOOL_CONFIG_MODULE", "named_overlay_of_test")
    assert overlay.read().values["worker_concurrency"] == 3


@pytest.mark.parametrize(
    "text",
    [
        "import os\nbroker_url = os.environ['OF_ANOTHER_APPLICATION']\n",
        "raise SystemExit(3)\n",
        "x = = 1\n",
        "\0",
        "SENSORPOOL_CELERY_CONFIG = False\n1 / 0",
        "# SENSORPOOL_CELERY_CONFIG = True\nx = = 1\n",
    ],
)
def test_another_application_s_is_not_run(folder: Path, text: str) -> None:
    (folder / "celeryconfig.py").write_text(text)
    found = overlay.read()
    assert (found.where, found.values) == ("", {})
    assert "has no line SENSORPOOL_CELERY_CONFIG = True, and is left alone" in str(found)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("broker_url = nowhere\n", "NameError: name 'nowhere' is not defined"),
        ("x = = 1\n", "SyntaxError: invalid syntax"),
        ("import no_such_module\n", "ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("beat_schedule = ['x']\n", "beat_schedule must be a mapping"),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_one_of_ours_that_fails_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str, named: bool
) -> None:
    name = "failing_overlay_of_test" if named else "celeryconfig"
    (folder / f"{name}.py").write_text(MARKED + text)
    if named:
        monkeypatch.setenv("SENSORPOOL_CONFIG_MODULE", name)
    with pytest.raises(SettingsError) as refused:
        make_app(Settings.load(redis_url="redis://127.0.0.1:1/0"))
    assert says in str(refused.value)
    assert name in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    wrong = [each for each in doctor.examine(Settings.load(database_url="sqlite://")) if each.subject == "celery"]
    assert [each.level for each in wrong] == ["wrong"]
