"""The tables of commands: lines fit on a terminal of 80 columns, and a pipe gets all cells, a line a row."""

import re
from functools import partial

import pytest
from click.testing import CliRunner
from rich import console
from rich.cells import cell_len

from sensorpool.admin import instances
from sensorpool.cli import inspecting, main, output

RUN = "scheduled__2026-11-22T08:00:00+00:00"
REASON = "HTTPStatusError: the server answered 500\nto GET https://example.org/a/very/long/path?with=a&query=string"
ROWS = [
    {
        "id": 12_345_678 - number,
        "state": "failed" if number else "sensing",
        "dag_id": "billing_of_the_whole_company_by_region",
        "task_id": f"wait_for_the_files_of_region_{number:03}",
        "run_id": RUN,
        "map_index": number - 1,
        "try_number": 1,
        "ending": None,
        "op_classpath": "sensorpool.sensors.PathSensor",
        "poke_context": {"path": "/data/2026-11-22/_SUCCESS"},
        "waiting_since": "2026-11-22T08:00:01.234Z",
        "settled_at": None,
        "reason": REASON if number else None,
    }
    for number in range(5)
]


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setattr(inspecting, "is_terminal", lambda: True)
    monkeypatch.setattr(console, "Console", partial(console.Console, force_terminal=True))


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "list_instances", lambda _, __, most: [dict(row) for row in ROWS[:most]])
    monkeypatch.setattr(instances, "count_instances", lambda *_: 2_007)
    monkeypatch.setattr(inspecting, "PoolView", lambda: None)


def run(*arguments: str) -> list[str]:
    done = CliRunner().invoke(main.main, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


@pytest.mark.usefixtures("on_terminal")
def test_a_terminal_of_80_columns_has_a_line_a_row() -> None:
    lines = run("list")
    assert len(lines) == 2 + len(ROWS), "a title and a head"
    assert all(cell_len(line) <= 80 for line in lines)
    for row, line in zip(ROWS, lines[2:], strict=True):
        assert line.split()[:2] == [str(row["id"]), row["state"]], "an id is there to be copied"
        assert "bill" in line
        assert "Path" in line
        assert re.search(r"\d+ (d|h|min|s) ago  ", line)


def test_what_is_piped_is_complete() -> None:
    lines = run("list")
    assert len(lines) == 2 + len(ROWS)
    for row, line in zip(ROWS, lines[2:], strict=True):
        assert 'sensorpool.sensors.PathSensor {"path": "/data/2026-11-22/_SUCCESS"}' in line
        for name in ("id", "state", "dag_id", "task_id", "run_id", "waiting_since"):
            assert str(row[name]) in line
        assert len(line.split("\t")) == 10
    assert REASON.replace("\n", "\\n") in lines[-1]


def test_a_page_says_how_many_there_are_and_how_to_get_the_next() -> None:
    assert run("list", "--limit=3")[0] == f"3 of 2,007 instances; for the next ones: --before {ROWS[2]['id']}"


def test_fields_that_are_piped_have_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_fields({"id": 1, "reason": "x" * 300 + "\n\x1b[31mred", "none": None, "more": {"a": [1]}})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["id", "reason", "none", "more"]
    assert len(lines[1]) > 300
    assert "\x1b" not in lines[1]
    assert lines[3] == 'more\t{"a": [1]}'


@pytest.mark.usefixtures("on_terminal")
@pytest.mark.parametrize(("variables", "painted"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_a_state_has_its_colour_where_colours_are_wanted(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], painted: bool
) -> None:
    for name, value in {"TERM": "xterm-256color", **variables}.items():
        monkeypatch.setenv(name, value)
    shown = CliRunner().invoke(main.main, ["list"], color=True).stdout
    assert ("\x1b[31mfailed" in shown) is painted
    assert ("\x1b[3" in shown) is painted
    assert "\x1b[0m  " not in shown.splitlines()[2], "what waits has no colour"


def test_a_watch_is_for_a_terminal() -> None:
    for arguments in (["list", "--watch"], ["list", "--watch=5", "--json"], ["status", "--watch"]):
        done = CliRunner().invoke(main.main, arguments)
        assert done.exit_code == 2
        assert "--watch is for a terminal" in done.output
    assert CliRunner().invoke(main.main, ["list", "--watch=0"]).exit_code == 2
