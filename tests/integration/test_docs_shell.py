"""The documents' shell blocks run as they are written, save for paths, passwords and ports.

Lines that install packages, or need Airflow, are only read. A line that is neither run nor read fails a test.
"""

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
import pytest
from sqlalchemy import create_engine, insert, make_url, text

from harness.service import kill_tree
from harness.until import until
from sensorpool import Instance, Pool
from sensorpool.admin import findings
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.cli.main import main
from sensorpool.config.settings import Settings
from sensorpool.model.identity import identify
from sensorpool.model.states import Ending
from sensorpool.store.migrate import upgrade
from sensorpool.store.schema import poke_quarantine
from tests.support.pages import ROOT, SHELLS, blocks, command_lines

pytestmark = pytest.mark.processes

PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
BLOCKS = {page: [command_lines(block) for block in blocks(page, *SHELLS)] for page in PAGES}
LINES_OF = {page: [line for block in of_page for line in block] for page, of_page in BLOCKS.items()}
LINES = sorted({line for lines in LINES_OF.values() for line in lines})
INSTALLS = re.compile(r"(venv/bin/)?pip (install|wheel) |python3 -m venv venv$|\. venv/bin/activate$|make ")
SERVES = re.compile(r"(venv/bin/)?sensorpool standalone$|celery -A sensorpool (worker|beat|flower)\b")
EXPORTS = re.compile(r"export (\w+)=(\S+)$")
OURS = re.compile(r"(venv/bin/)?sensorpool ")
# programs that are not here: a cluster's, an image builder's, PostgreSQL's own; what Airflow says of its version
OF_OTHERS = re.compile(r"((\w+=\S+ )*docker|sudo|kubectl|helm|pg_dump|--(from-literal|set)\b)")
TUTORIAL = "docs/tutorial-celery.md"  # run as a whole: tests/examples/test_tutorial.py
ARRIVED = "/tmp/arrived"  # the file that the documents wait for
QUARANTINED = "q3f9a12c04b7e"  # the condition that they release
TO_REGISTER = [  # from a file
    {"op_classpath": "sensorpool.sensors.PathSensor", "poke_context": {"path": "/nowhere"}, "timeout": 60},
    {"op_classpath": "os.system", "poke_context": {}},
]


def commands(command: click.Command) -> Iterator[click.Command]:
    """Yield a command and all its subcommands."""
    yield command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below)


def block_with(page: str, line: str) -> list[str]:
    """Return the block of a page that has this line."""
    [found] = [block for block in BLOCKS[page] if any(re.search(line, each) for each in block)]
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty home folder."""
    return tmp_path_factory.mktemp("shell")


@pytest.fixture(scope="module")
def environment(home: Path) -> dict[str, str]:
    """The environment of all terminals, with short intervals, so that something happens within a minute."""
    quick = {"SENSORPOOL_TICK": "3", "SENSORPOOL_POKE_INTERVAL": "3", "SENSORPOOL_SHARDS": "2"}
    return os.environ | quick | {"XDG_STATE_HOME": str(home), "TMPDIR": str(home), "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def standalone(home: Path, environment: dict[str, str]) -> Iterator[Path]:
    """The one-process service of the README; its database."""
    [line] = [each for each in block_with("README.md", "standalone") if SERVES.match(each)]
    with (home / "log").open("wb") as log:
        words = [sys.executable, "-m", *shlex.split(line)]
        process = subprocess.Popen(words, env=environment, cwd=home, stdout=log, stderr=log)
    until("the service to be ready", lambda: "sensorpool: ready" in (home / "log").read_text())
    yield home / "sensorpool" / "sensorpool.db"
    kill_tree(process)


def type_in(lines: list[str], home: Path, environment: dict[str, str]) -> list[tuple[int, str]]:
    """Type lines in another terminal; return their exit codes and what they printed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.terminal"],
        input=json.dumps(lines),
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [(code, said) for code, said in json.loads(done.stdout)]


def test_the_tour_of_the_one_process_service(standalone: Path, home: Path, environment: dict[str, str]) -> None:
    (home / "sensors.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in TO_REGISTER))
    condition = identify("sensorpool.sensors.PathSensor", {"path": "/quarantined"})
    row = {"op_classpath": "sensorpool.sensors.PathSensor", "poke_context": condition.poke_context}
    row |= {"digest": bytes.fromhex(QUARANTINED[1:]) + bytes(26), "crashes": 3, "reason": "it crashes"}
    row["since"] = int(time.time() * 1000)
    engine = create_engine(f"sqlite:///{standalone}")
    with engine.begin() as connection:
        connection.execute(insert(poke_quarantine), row)
    engine.dispose()
    tours = [block_with(page, "touch") for page in ("README.md", "docs/quickstart.md")]
    waits = [line for tour in tours for line in tour if " register " in line]
    assert all("--poke-interval 5" in line for line in waits), "nobody waits a minute for a file"
    typed = [
        line.replace(ARRIVED, str(home / f"arrived-{number}")).replace("wait 1 ", f"wait {number} ")
        for number, tour in enumerate(tours, 1)
        for line in tour
    ]
    typed += block_with("docs/how-to.md", "release") + block_with("docs/how-to.md", "--from")
    answers = type_in(typed, home, environment)
    for line, (code, said) in zip(typed, answers, strict=True):
        assert code == (1 if "--from" in line else 0), (line, said)  # one of its lines is refused
    said_by = {line: said for line, (_, said) in zip(typed, answers, strict=True)}
    assert [said for line, said in said_by.items() if " wait " in line] == ["1 success\n", "2 success\n"]
    assert said_by[f"sensorpool release {QUARANTINED}"] == "1 let out of quarantine\n"
    [lines] = [json.loads(said) for line, said in said_by.items() if "--from" in line]
    assert (lines["registered"], lines["groups"], [each["line"] for each in lines["refused"]]) == (1, 1, [2])


def test_the_service_with_servers(
    empty_database: str, redis_url: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    servers = {"SENSORPOOL_DATABASE_URL": empty_database, "SENSORPOOL_REDIS_URL": redis_url}
    variables, started = environment | {"TMPDIR": str(tmp_path)}, []
    typed = block_with("docs/quickstart.md", "db upgrade") + block_with("README.md", "flower")
    try:
        for line in dict.fromkeys(typed):
            if found := EXPORTS.match(line):
                variables[found[1]] = servers[found[1]]
            elif OURS.match(line):
                [(code, said)] = type_in([line], tmp_path, variables)
                assert code == 0, (line, said)
            elif SERVES.match(line) and "flower" not in line:  # Flower has a test of its own
                with (tmp_path / f"log-{len(started)}").open("wb") as log:
                    words = [sys.executable, "-m", *shlex.split(line)]
                    started.append(subprocess.Popen(words, env=variables, cwd=tmp_path, stdout=log, stderr=log))
        assert servers.items() <= variables.items(), "the blocks name these servers"
        assert len(started) == 2, "one worker, one beat"
        with closing(Pool(Settings.load(database_url=empty_database, redis_url=redis_url, shards=2, tick=3))) as pool:
            until("the pool to be healthy", lambda: not findings.health(pool))
    finally:
        for process in started:
            kill_tree(process)


@pytest.mark.parametrize("page", ["README.md", "docs/airflow.md", "docs/tutorial-airflow.md"])
def test_the_pool_has_a_role_of_its_own_in_airflows_database(page: str, empty_database: str) -> None:
    [role] = [block for block in blocks(page, "sql") if "CREATE ROLE" in block]
    exports = dict(found.groups() for line in LINES_OF[page] if (found := EXPORTS.match(line)))
    url = make_url(exports["AIRFLOW__SENSORPOOL__DATABASE_URL"])
    assert f"CREATE ROLE {url.username} LOGIN PASSWORD '{url.password}'" in role
    engine, mine = create_engine(empty_database, isolation_level="AUTOCOMMIT"), "pool_of_the_docs"
    with closing(engine.connect()) as connection:
        connection.execute(text(re.sub(r"(ROLE|AUTHORIZATION) \w+", rf"\1 {mine}", role)))
        try:
            theirs = make_url(empty_database).set(username=mine, password=url.password)
            upgrade(theirs.render_as_string(hide_password=False), schema="sensorpool")
        finally:
            connection.execute(text(f"DROP SCHEMA sensorpool CASCADE; DROP ROLE {mine}"))
    engine.dispose()


@pytest.mark.parametrize("line", LINES)
def test_each_line_is_run_here_or_read(line: str) -> None:
    kinds = [kind for kind in (INSTALLS, SERVES, EXPORTS, OURS, OF_OTHERS) if kind.match(line)]
    of_tutorial = any(line in block for block in BLOCKS[TUTORIAL])
    is_example = line in (f"touch {ARRIVED}", f"rm -f {ARRIVED}") or line.startswith("export SENSORPOOL_CONN_")
    assert kinds or of_tutorial or is_example, "no test knows this line"
    if line.startswith("make "):
        targets = re.findall(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert line.split()[1] in " ".join(targets).split()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for found in re.findall(r"\[([a-z0-9,]+)\]", line):
        assert set(found.split(",")) <= extras.keys()
    if found := re.match(r"export (?:AIRFLOW__)?SENSORPOOL_{1,2}(?!CONN_)(\w+)=", line):
        assert found[1].lower() in Settings.model_fields.keys() | AirflowSettings.model_fields.keys()


def test_the_reference_names_every_option_and_no_other() -> None:
    text = (ROOT / "docs/reference.md").read_text()
    page = text[text.index("## Command line") : text.index("## Sensors")]
    options = {
        option
        for command in commands(main)
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--")
    }
    assert set(re.findall(r"(?<!-)--[a-z][a-z-]+", page)) == options | {"--help"}


def test_the_reference_names_what_register_takes_and_returns() -> None:
    text = (ROOT / "docs/reference.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| `register("))
    arguments = inspect.signature(Pool.register).parameters.keys() - {"self"}
    named = set(re.findall(r"\w+", re.match(r"\| `register\((.*?)\)`", row)[1])) - {"None", "False", "1"}  # type: ignore[index]
    assert named == arguments
    returned = row.partition("an `Instance` (")[2].partition(";")[0]
    assert re.findall(r"`(\w+)`", returned) == list(Instance._fields)
    endings = text.partition("`ending` is one of ")[2].partition(".\n")[0]
    assert re.findall(r"`(\w+)`", endings) == [str(ending) for ending in Ending]
