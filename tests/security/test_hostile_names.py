"""Threat: names that mean something to a path, a routing key, a log, a terminal or SQL."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kombu.transport.virtual.exchange import TopicExchange

from sensorpool import Pool, Settings
from sensorpool.cli.main import main
from sensorpool.cli.registering import LONGEST_LINE
from sensorpool.errors import Refused
from sensorpool.model.identity import MAX_CONTEXT_BYTES, MAX_CONTEXT_DEPTH
from sensorpool.publish.wire import MIXED, routing_key
from sensorpool.store.database import Database
from sensorpool.store.migrate import upgrade
from tests.security.planting import plant, rows

PATH_SENSOR = "sensorpool.sensors.PathSensor"
HARMLESS = [
    "../../x",
    "/etc/passwd",
    "..",
    "#",
    "*",
    "a.#.b",
    "%",
    "%2E",
    "%s%n",
    "[red]x[/]",
    "[/]",
    ":bomb:",
    "{0}",
    "$(x)",
]
HARMLESS += [
    "-",
    "--all",
    "é" * 250,
    "x" * 250,
    "数据",
    "a b",
    "'; DROP TABLE poke_group; --",
    '"',
    "\\",
    "`x`",
    "${jndi:x}",
]
REFUSED = [
    "",
    " ",
    "a ",
    " a",
    "x" * 300,
    "a\0b",
    "a\nb",
    "a\rb",
    "\x1b[2Jx",
    "a\x9b2J",
    "a\u2028b",
    "a\u202eb",
    "\ud800",
    "a\tb",
]
PLANTED = ["\x1b[2J\x1b]0;owned\x07", "a\nsensorpool: all is well", "\x9b2J", "\u202egnp.exe", "[red]x[/]", "a\rb"]


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    upgrade(url)
    return url


def run(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"SENSORPOOL_DATABASE_URL": url, "COLUMNS": "4000"})


def register(pool: Pool, name: str) -> int:
    return pool.register(PATH_SENSOR, {"path": "/nowhere"}, dag_id=name, task_id=name, run_id=name).id


@pytest.mark.parametrize("name", REFUSED, ids=ascii)
def test_names_that_are_refused(name: str, url: str) -> None:
    """Threat `dag_id and task_id`: refused in one line that is harmless itself."""
    pool = Pool(Settings.load(database_url=url))
    for part in ("dag_id", "task_id", "run_id"):
        named = {"dag_id": "d", "task_id": "t", "run_id": "r"} | {part: name}
        with pytest.raises(Refused, match=part) as caught:
            pool.register(PATH_SENSOR, {"path": "/nowhere"}, **named)
        assert str(caught.value).isprintable()
    pool.close()


def test_names_that_are_shown_harmlessly(url: str, tmp_path: Path) -> None:
    """Threat `dag_id and task_id`: stored and shown as they are; no markup, no path, no pattern."""
    pool = Pool(Settings.load(database_url=url))
    ids = {name: register(pool, name) for name in HARMLESS}
    table = run(url, "list")
    assert table.exit_code == 0, table.stderr
    for name in HARMLESS:
        assert name in table.stdout
    listed = json.loads(run(url, "list", "--json").stdout)
    assert {row["dag_id"] for row in listed} == set(HARMLESS)
    for name in ("[/]", "'; DROP TABLE poke_group; --", "%", "--all"):
        found = json.loads(run(url, "list", f"--dag-id={name}", "--json").stdout)
        assert [row["id"] for row in found] == [ids[name]]
    shown = run(url, "show", str(ids["[/]"]))
    assert shown.exit_code == 0, shown.stderr
    assert "[/]" in shown.stdout
    assert sorted(path.name for path in tmp_path.iterdir() if "pool.db" not in path.name) == []
    pool.close()


def test_planted_names_reach_no_terminal_raw(url: str) -> None:
    """Threat `dag_id and task_id`: rows that nobody checked; escape sequences are spelt out."""
    database = Database(url)
    ids = [plant(database, PATH_SENSOR, json.dumps({"path": name}), dag_id=name, reason=name) for name in PLANTED]
    for arguments in (
        ["list"],
        ["list", "--json"],
        ["show", str(ids[0])],
        ["show", str(ids[0]), "--json"],
        ["show", str(ids[3])],
    ):
        done = run(url, *arguments)
        assert done.exit_code == 0, done.stderr
        assert not set("\x1b\x9b\u202e\x07\r") & set(done.stdout + done.stderr)
        assert "\nsensorpool: all is well" not in done.stdout
    assert {row["dag_id"] for row in json.loads(run(url, "list", "--json").stdout)} == set(PLANTED)
    # a message that quotes a name
    conflict = run(url, "register", PATH_SENSOR, '{"path": "/a"}', "--dag-id=a\x1bb", "--task-id=t", "--run-id=r")
    assert conflict.exit_code == 2
    assert "\x1b" not in conflict.stderr
    assert len(conflict.stderr.splitlines()) == 1
    database.dispose()


@pytest.mark.parametrize("number", ["0", "-1", "99999999999999999999999", "9223372036854775808"])
def test_numbers_that_no_database_has(number: str, url: str) -> None:
    """Threat `dag_id and task_id`: ids, too."""
    for command in ("show", "cancel", "wait"):
        done = run(url, command, "--", number)
        assert done.exit_code == 1
        assert len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize("name", HARMLESS, ids=ascii)
def test_a_routing_key_is_one_word_of_255_bytes(name: str) -> None:
    """Threat `dag_id and task_id`: no wildcard, no second word, nothing that AMQP refuses; and no other's results."""
    key = routing_key(name)
    assert 0 < len(key.encode()) <= 255
    assert not set(key) & set(".#*")
    assert key != MIXED
    pattern = TopicExchange(None).key_to_pattern(key)
    assert not [
        other for other in HARMLESS if other != name and TopicExchange(None)._match(pattern, routing_key(other))
    ]


def deep(levels: int) -> object:
    found: object = "x"
    for _ in range(levels - 1):
        found = {"a": found}
    return found


@pytest.mark.parametrize(
    "context",
    [
        {"path": "x" * (MAX_CONTEXT_BYTES + 1)},
        {"path": deep(MAX_CONTEXT_DEPTH + 1)},
        {"path": deep(100_000)},
        {"path": [0] * (MAX_CONTEXT_BYTES + 1)},
        {str(number): 0 for number in range(MAX_CONTEXT_BYTES)},
        {"x" * MAX_CONTEXT_BYTES: 1},
        {"path": 10**400},
    ],
    ids=["bytes", "depth", "abyss", "values", "keys", "a key", "a number"],
)
def test_giant_contexts_are_refused(context: dict[str, object], url: str) -> None:
    """Threat `giant contexts`: size, depth, number of values."""
    pool = Pool(Settings.load(database_url=url))
    with pytest.raises(Refused) as caught:
        pool.register(PATH_SENSOR, context)
    assert len(str(caught.value)) < 300
    assert rows(pool.database) == {}
    pool.close()


MEASURED = """
import sys, tracemalloc
from sensorpool.cli.main import main
tracemalloc.start()
try:
    main(sys.argv[1:])
finally:
    print(tracemalloc.get_traced_memory()[1], file=sys.stderr)
"""


def registered_by_pipe(url: str, lines: Iterable[str]) -> tuple[Any, int]:
    """Register from standard input; return the answer, and the most bytes of memory at once."""
    child = subprocess.Popen(
        [sys.executable, "-c", MEASURED, "register", "--from", "-"],
        env=os.environ | {"SENSORPOOL_DATABASE_URL": url},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    with suppress(BrokenPipeError):
        child.stdin.writelines(lines)
    out, err = child.communicate(timeout=60)
    return json.loads(out), int(err.splitlines()[-1])


def test_a_giant_line_ends_the_command_and_is_not_kept(url: str) -> None:
    """Threat `giant contexts`: a line without an end, by the command line; memory stays as it is."""
    good = json.dumps({"op_classpath": PATH_SENSOR, "poke_context": {"path": "/nowhere"}}) + "\n"
    _, usual = registered_by_pipe(url, [good])  # most of it is imports, and more where more is installed
    giant = [good, '{"op_classpath": "', *["x" * LONGEST_LINE] * 40]
    answer, most = registered_by_pipe(url, giant)
    assert (answer["registered"], answer["stopped"]) == (1, "line 2 has 1,000,000 bytes or more")
    assert most - usual < 30 * LONGEST_LINE, "bytes at most at once; the line has 40 times LONGEST_LINE"
