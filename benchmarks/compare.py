"""Compare this commit with another one: each question is asked there and here in turn, several times.

python -m benchmarks.compare v0.1.0 settle register          five runs each: the median, and the least and the most
"""

import json
import os
import subprocess
import sys
import tempfile
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

Figures = dict[tuple[str, str, str], float]  # by question, case and name


@click.command(help=__doc__)
@click.argument("commit")
@click.argument("questions", nargs=-1, required=True, type=click.Choice(list(QUESTIONS)))
@click.option("--runs", default=5, type=click.IntRange(min=1), show_default=True, help="Of each commit.")
@click.option("--full", is_flag=True, help="At full size.")
@click.option("--results", type=click.Path(path_type=Path), help="A file for all figures, as JSON.")
def main(commit: str, questions: tuple[str, ...], runs: int, full: bool, results: Path | None) -> None:
    """Compare."""
    if code_version() is None:
        raise click.ClickException("the code has changes that are in no commit: commit them, or put them aside")
    before: list[Figures] = []
    after: list[Figures] = []
    with ExitStack() as stack:
        trees = [stack.enter_context(_tree(each)) for each in (commit, "HEAD")]
        for number in range(1, runs + 1):
            # in turn, and each first as often as the other: a machine has faster and slower hours
            for tree, found in list(zip(trees, (before, after), strict=True))[:: 1 if number % 2 else -1]:
                click.echo(f"run {number} of {runs}: {'there' if found is before else 'here'} …", err=True)
                found.append(_measure(tree, questions, full=full))
                if results:
                    results.write_text(json.dumps({"before": _written(before), "after": _written(after)}, indent=1))
    Console(soft_wrap=True).print(table(before, after, commit))


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
            yield tree
        finally:
            _run("git", "worktree", "remove", "--force", str(tree))


def _measure(tree: Path, questions: Sequence[str], *, full: bool) -> Figures:
    """Ask the questions of the code in a tree."""
    command = [sys.executable, "-m", "benchmarks", *questions, *(["--full"] if full else [])]
    done = subprocess.run(
        command, cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)}, stdout=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        raise click.ClickException(f"the benchmarks failed: {' '.join(command[1:])}")
    found: Figures = {}
    for question in questions:
        found |= figures(
            question, json.loads((tree / "benchmarks" / "results" / f"{question}.json").read_text())["rows"]
        )
    return found


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or "it failed").splitlines()[-1]
        raise click.ClickException(f"{' '.join(command[:3])}: {said}")


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):,.4g} ({min(values):,.4g} to {max(values):,.4g})"


def _written(runs: Sequence[Figures]) -> list[dict[str, float]]:
    return [{" | ".join(key): value for key, value in run.items()} for run in runs]


if __name__ == "__main__":
    main()
