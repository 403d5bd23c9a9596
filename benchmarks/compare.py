"""Compare this commit with another one: each question is asked there and here in turn, several times.

It is asked there as it is asked here, by this commit's benchmarks.

python -m benchmarks.compare v0.1.0 settle register          five runs each: the median, and the least and the most

What was measured is kept in a file. A comparison that was cut off goes on there, as long as both commits are the same.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.__main__ import QUESTIONS
from benchmarks.code_version import ROOT, code_version
from benchmarks.stage import write_json

Figures = dict[tuple[str, str, str], float]  # by question, case and name
THERE, HERE = "there", "here"
RESULTS = ROOT / "benchmarks" / "results" / "compare.json"
TRIES = 3  # of a question in one tree: a machine that is busy elsewhere may fail one


@click.command(help=__doc__)
@click.argument("commit")
@click.argument("questions", nargs=-1, required=True, type=click.Choice(list(QUESTIONS)))
@click.option("--runs", default=5, type=click.IntRange(min=1), show_default=True, help="Of each commit.")
@click.option("--full", is_flag=True, help="At full size.")
@click.option("--results", default=RESULTS, type=click.Path(path_type=Path), help="The file that keeps all figures.")
def main(commit: str, questions: tuple[str, ...], runs: int, full: bool, results: Path) -> None:
    """Compare."""
    code = code_version()
    if code is None:
        raise click.ClickException("the code has changes that are in no commit: commit them, or put them aside")
    commits = {THERE: _run("git", "rev-parse", f"{commit}^{{commit}}"), HERE: code}
    kept = Kept.read(results, {**commits, "size": "full" if full else "usual"})
    with ExitStack() as stack:
        trees = {side: stack.enter_context(_tree(each)) for side, each in commits.items()}
        shutil.copytree(trees[HERE] / "benchmarks", trees[THERE] / "benchmarks", dirs_exist_ok=True)
        for number in range(runs):
            for question in questions:
                # in turn, and each first as often as the other: a machine has faster and slower hours
                for side in (THERE, HERE)[:: -1 if number % 2 else 1]:
                    if kept.runs(question, side) <= number:
                        click.echo(f"{question}, run {number + 1} of {runs}: {side} …", err=True)
                        kept.add(question, side, _measure(trees[side], question, full=full))
    for question in questions:
        Console(soft_wrap=True).print(table(kept.of(question, THERE), kept.of(question, HERE), commit))


class Kept:
    """The figures that were measured, in a file.

    :param about: what they are of: figures of anything else are not kept beside them.
    """

    def __init__(self, path: Path, about: Mapping[str, str], measured: list[dict[str, Any]]) -> None:
        self._path = path
        self._about = about
        self._measured = measured

    @classmethod
    def read(cls, path: Path, about: Mapping[str, str]) -> "Kept":
        """Read what is there; nothing, if that is about other commits."""
        found = json.loads(path.read_text()) if path.exists() else {}
        return cls(path, about, found["measured"] if found.get("about") == about else [])

    def runs(self, question: str, side: str) -> int:
        """Return how often a question was asked on one side."""
        return len(self.of(question, side))

    def add(self, question: str, side: str, found: Figures) -> None:
        """Keep the figures of a run."""
        named = {" | ".join(key[1:]): value for key, value in found.items()}
        self._measured.append({"question": question, "side": side, "figures": named})
        write_json(self._path, {"about": self._about, "measured": self._measured})

    def of(self, question: str, side: str) -> list[Figures]:
        """Return the figures of each run."""
        return [
            {(question, *_split(name)): value for name, value in each["figures"].items()}
            for each in self._measured
            if (each["question"], each["side"]) == (question, side)
        ]


def _split(name: str) -> tuple[str, str]:
    case, _, figure = name.rpartition(" | ")
    return case, figure


def table(before: Sequence[Figures], after: Sequence[Figures], commit: str) -> Table:
    """Return the figures that all runs have: the median, the least and the most, and the ratio of the medians."""
    shown = Table(title=f"{len(before)} runs each; the ratio is of the medians", title_justify="left")
    for name in ("question", "case", "figure"):
        shown.add_column(name)
    for name in (f"at {commit}", "now", "ratio"):
        shown.add_column(name, justify="right")
    for key in before[0]:
        if all(key in run for run in (*before, *after)):
            there, here = ([run[key] for run in runs] for runs in (before, after))
            ratio = f"{median(here) / median(there):.2f}" if median(there) else ""
            shown.add_row(*key, _spread(there), _spread(here), ratio)
    return shown


def figures(question: str, rows: Sequence[Mapping[str, Any]]) -> Figures:
    """Return the numbers of a question's rows."""
    found: Figures = {}
    for row in rows:
        for name, value in row.items():
            parts = value.items() if isinstance(value, dict) else [("", value)]
            for part, number in parts:
                if isinstance(number, int | float) and not isinstance(number, bool):
                    found[question, str(row.get("case", "")), f"{name}: {part}" if part else name] = number
    return found


@contextmanager
def _tree(commit: str) -> Iterator[Path]:
    """Check a commit out beside this tree, for as long as this context lasts."""
    with tempfile.TemporaryDirectory(prefix="sensorpool-compare-") as folder:
        tree = Path(folder) / "tree"
        _run("git", "worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            _name_entry_points(tree)
            yield tree
        finally:
            _run("git", "worktree", "remove", "--force", str(tree))


def _name_entry_points(tree: Path) -> None:
    """Write the entry points of a tree into it: those that are installed here may be of modules that it has not."""
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    info = tree / f"{project['name']}-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n")
    groups = {"console_scripts": project.get("scripts", {}), **project.get("entry-points", {})}
    lines = [
        line
        for group, entries in groups.items()
        for line in (f"[{group}]", *(f"{name} = {place}" for name, place in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def _measure(tree: Path, question: str, *, full: bool) -> Figures:
    """Ask a question of the code in a tree."""
    command = [sys.executable, "-m", "benchmarks", question, *(["--full"] if full else [])]
    for _ in range(TRIES):
        done = subprocess.run(
            command, cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)}, capture_output=True, text=True, check=False
        )
        if not done.returncode:
            found = json.loads((tree / "benchmarks" / "results" / f"{question}.json").read_text())
            return figures(question, found["rows"])
        # the second line that begins with the question is its error; the first one is its heading
        errors = [line for line in done.stdout.splitlines() if line.startswith(f"{question}: ")][1:]
        said = errors or done.stderr.splitlines()
        click.echo(f"  it failed: {said[-1] if said else 'it says nothing'}", err=True)
    raise click.ClickException(f"the benchmark failed {TRIES} times: {' '.join(command[1:])}")


def _run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or "it failed").splitlines()[-1]
        raise click.ClickException(f"{' '.join(command[:3])}: {said}")
    return done.stdout.strip()


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):,.4g} ({min(values):,.4g} to {max(values):,.4g})"


if __name__ == "__main__":
    main()
