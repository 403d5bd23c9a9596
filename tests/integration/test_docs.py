"""The documents stay true: their Python blocks run on a live pool, and their command lines are parsed."""

import re
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from celery import Celery, chain

import sensorpool
from sensorpool import Settings
from sensorpool.cli.main import main
from sensorpool.client import default
from sensorpool.sensors import PathSensor
from sensorpool.service.standalone import Standalone
from sensorpool.store.migrate import upgrade
from tests.support.pages import ROOT, blocks, command_lines

PAGES = ("README.md", "docs/quickstart.md", "docs/how-to.md", "docs/operations.md", "docs/airflow.md")
PYTHON = [(page, block) for page in PAGES[:3] for block in blocks(page, "python")]


TASKS = ("alarm", "begin", "count", "load", "prepare", "report")  # of the user whose code the pages show


def _run(*_: Any) -> None:
    """Do nothing: no worker takes these."""


class Heard(Exception):
    """Raised when the expected output of a block has come."""


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A live pool, and a folder in which every condition of the documents has landed."""
    folder = tmp_path_factory.mktemp("docs")
    url = f"sqlite:///{folder / 'pool.db'}"
    for day in ("2026-11-19", "2026-11-20"):
        (folder / "data" / day).mkdir(parents=True)
        (folder / "data" / day / "_SUCCESS").touch()
    (folder / "data" / "x").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SENSORPOOL_DATABASE_URL", url)
        patch.setenv("SENSORPOOL_TICK", "0.5")
        patch.setenv("SENSORPOOL_ON_SETTLED_TASKS", "go_on,shop.*")
        upgrade(url)
        with Standalone(Settings.load()):
            yield folder
        if default._pool is not None:
            default._pool.close()
            default._pool = None


@pytest.mark.parametrize(("page", "block"), PYTHON, ids=[f"{page}-{n}" for n, (page, _) in enumerate(PYTHON)])
def test_a_python_block_runs(page: str, block: str, living: Path) -> None:
    app = Celery("users", broker="memory://", set_as_current=False)

    @app.task(name="go_on", shared=False)
    def go_on(result: Any, number: int) -> None:
        """Go on."""

    tasks = {name: app.task(name=f"shop.{name}", shared=False)(_run) for name in TASKS}
    # it hears a result that is registered a moment later
    key = {"dag_id": "load", "task_id": "other", "run_id": "other"}
    other = threading.Timer(
        0.5, lambda: sensorpool.register("sensorpool.sensors.PathSensor", {"path": f"{living}/data/x"}, **key)
    )

    def heard(*said: Any) -> None:
        raise Heard(*said)

    namespace = ModuleType("block").__dict__ | {
        "__name__": "block",
        "sensorpool": sensorpool,
        "go_on": go_on,
        "Path": Path,
        "PathSensor": PathSensor,
        "chain": chain,
        "week": ["2026-11-19", "2026-11-20"],
        **tasks,
        "days_of": lambda table: ["2026-11-20"],
        "all_days": lambda: ["2026-11-20"],
    }
    code = block.replace("/data/", f"{living}/data/").replace("////tmp/", f"///{living}/")
    if "listen(" in code:
        namespace["print"] = heard
        other.start()
        with pytest.raises(Heard, match="'dag_id': 'load'"):
            exec(code, namespace)
        other.join()
    else:
        exec(code, namespace)
    for made in (namespace.get(name) for name in ("pool", "other")):
        if isinstance(made, sensorpool.Pool):  # it is of use
            assert made.register("sensorpool.sensors.PathSensor", {"path": f"{living}/data/x"}).id
            made.close()
    if "states" in namespace:
        assert set(namespace["states"].values()) == {"success"}


def test_a_sensor_of_the_documents_answers() -> None:
    first = next(block for page, block in PYTHON if "class Arrived" in block)
    namespace: dict[str, Any] = {"days_of": lambda table: [table]}
    exec(first, namespace)
    assert namespace["Arrived"]("day", "day").poke({}) is True


LINES = sorted(
    {
        line
        for page in PAGES
        for block in blocks(page, "sh")
        for line in command_lines(block)
        if re.match(r"(venv/bin/)?sensorpool ", line)
    }
)


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_is_understood(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sensors.jsonl").touch()
    words = shlex.split(line)[1:]
    command: click.Command = main
    while words:
        if not isinstance(command, click.Group):
            break
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, words[0]
        command, words = found, words[1:]
    command.make_context("sensorpool", words).close()  # parses, and runs nothing


def test_no_document_names_a_package_that_is_nowhere() -> None:
    """sensorpool is on no registry: an installation by its name alone would get another package, or none."""
    texts = [
        path for place in ("docs", "sensorpool") for path in (ROOT / place).rglob("*") if path.suffix in {".md", ".py"}
    ]
    for path in [ROOT / "README.md", *texts]:
        for line in path.read_text().splitlines():
            found = re.search(r"pip install [\"']?sensorpool(?!.* @ )", line)
            assert not found, f"{path}: {line}"
