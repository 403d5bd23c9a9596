"""The modules of the package that benchmarks name exist; a run that was cut off goes on."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from click import ClickException
from click.testing import CliRunner

import benchmarks.__main__ as command_line
from benchmarks import compare, report
from benchmarks.hotpath import PARTS, part_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", [path for path in PARTS if path.startswith(("sensorpool/", "benchmarks/"))])
def test_a_part_of_the_hot_path_is_there(path: str) -> None:
    assert (ROOT / path).is_dir() if path.endswith("/") else (ROOT / f"{path}.py").is_file()


def test_the_innermost_part_counts() -> None:
    stack = ["billiard/pool.py:1", "sensorpool/worker/job.py:2", "sensorpool/settle/flush.py:3", "sqlalchemy/x.py:4"]
    assert part_of(stack) == "settle"


class Question(ModuleType):
    """A benchmark that counts its runs, and fails if it is told so."""

    def __init__(self, name: str) -> None:
        super().__init__(f"benchmarks.{name}")
        self.runs, self.fails = 0, False

    def run(self, full: bool) -> Iterator[report.Row]:
        self.runs += 1
        yield {"case": "full" if full else "small"}
        report.demand(not self.fails, "the case failed")


def test_a_run_that_was_cut_off_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    questions = {name: Question(name) for name in ("settle", "register")}
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    for name, question in questions.items():
        monkeypatch.setitem(sys.modules, f"benchmarks.{name}", question)
    code: list[str | None] = ["abc"]
    monkeypatch.setattr(command_line, "code_version", lambda: code[0])

    def runs(*arguments: str) -> tuple[int, int]:
        CliRunner().invoke(command_line.main, ["settle", "register", *arguments])
        return questions["settle"].runs, questions["register"].runs

    questions["register"].fails = True
    assert runs("--go-on") == (1, 1)
    questions["register"].fails = False
    assert runs("--go-on") == (1, 2)  # the failed one is measured again
    assert runs("--go-on") == (1, 2)
    assert runs("--go-on", "--full") == (2, 3)  # another command
    code[0] = "def"
    assert runs("--go-on", "--full") == (3, 4)  # another commit
    assert runs("--full") == (4, 5)  # it was not asked to go on
    code[0] = None
    assert runs("--go-on", "--full") == (5, 6)  # what is measured is in no commit


def test_a_comparison_has_the_figures_that_both_commits_have() -> None:
    rows = [{"case": "a", "CPU, µs": 4.0, "by part": {"worker": 3.0, "beat": 1}, "is met": True, "left": None}]
    before = compare.figures("settle", rows)
    assert before == {
        ("settle", "a", "CPU, µs"): 4.0,
        ("settle", "a", "by part: worker"): 3.0,
        ("settle", "a", "by part: beat"): 1,
    }
    here = [{("settle", "a", "CPU, µs"): value} for value in (1.0, 2.0, 9.0)]
    shown = compare.table([before, before, before], here, "v1")
    assert shown.row_count == 1
    assert [list(column.cells) for column in shown.columns][2:] == [
        ["CPU, µs"],
        ["4 (4 to 4)"],
        ["2 (1 to 9)"],
        ["0.50"],
    ]


def test_a_comparison_that_was_cut_off_goes_on_with_the_same_commits(tmp_path: Path) -> None:
    path, about = tmp_path / "compare.json", {"there": "a", "here": "b"}
    found = {("settle", "10,000 | at once", "CPU, µs"): 4.5}
    compare.Kept.read(path, about).add("settle", "there", found)
    kept = compare.Kept.read(path, about)
    assert kept.of("settle", "there") == [found]
    assert (kept.runs("settle", "there"), kept.runs("settle", "here"), kept.runs("idle", "there")) == (1, 0, 0)
    assert compare.Kept.read(path, about | {"here": "c"}).runs("settle", "there") == 0


def test_a_question_that_fails_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    (tmp_path / "benchmarks" / "results" / "settle.json").write_text('{"rows": [{"case": "a", "CPU": 3.0}]}')
    codes = [1, 1, 0]

    def run(*_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(returncode=codes.pop(0), stdout="settle: too slow", stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    assert compare._measure(tmp_path, "settle", full=False) == {("settle", "a", "CPU"): 3.0}
    codes[:] = [1] * compare.TRIES
    with pytest.raises(ClickException, match="failed 3 times"):
        compare._measure(tmp_path, "settle", full=False)
