"""Every seeded fault is caught by the guarantee that it breaks, and the real code passes the same hunt.

Each mutant is a copy of the package in a folder of its own; the stateful test runs on it in a process of its own. An
ImportError, or a run that takes too long, does not count as a catch.

A run hunts for one mutant in seventeen, by its seed; ``SENSORPOOL_TEST_FULL=1`` and ``make mutants`` hunt for all.
"""

import os
import random
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.servers import Elsewhere, Server
from tests.faults.mutants.mutants import MUTANTS, Mutant

HERE = Path(__file__).resolve().parents[3]
SEEDS = (1, 2, 3, 4, 5, 6) if not os.environ.get("SENSORPOOL_TEST_FULL") else tuple(range(1, 11))
ALL = bool(os.environ.get("SENSORPOOL_TEST_FULL") or os.environ.get("SENSORPOOL_TEST_MUTANTS") == "all")
AT_ONCE = 2
EXAMPLES, EXAMPLES_OF_NONE = 250, 100  # the stateful test itself runs on the real code
LIMIT = 600.0  # seconds of one run; on a quiet machine it takes 50
_BROKEN = re.compile(r"Broken: (G\d+|GROUPS|KEYS): ")
_FAILED = re.compile(r"^E +(?:assert|AssertionError).*^FAILED \S+::(test_\w+)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Hunt:
    """The result of the hunt for a mutant."""

    caught_by: str
    seconds: float
    output: str


def hunt(folder: Path, mutant: Mutant, postgres: str | None, seeds: tuple[int, ...] = SEEDS) -> Hunt:
    """Run the tests on a mutant's copy until a run fails."""
    copy(folder, mutant)
    started, output = time.monotonic(), ""
    for seed in seeds:
        done = subprocess.run(
            command(mutant, seed),
            cwd=folder,
            env=environment(postgres, EXAMPLES if mutant.edits else EXAMPLES_OF_NONE),
            **_RUN,
        )
        output = done.stdout
        if done.returncode == 1 and (found := _BROKEN.search(output) or _FAILED.search(output)):
            return Hunt(found[1], time.monotonic() - started, output)
        if done.returncode != 0:
            break
    return Hunt("nobody" if not output or done.returncode == 0 else "ERROR", time.monotonic() - started, output)


_RUN: dict[str, object] = {
    "stdout": subprocess.PIPE,
    "stderr": subprocess.STDOUT,
    "text": True,
    "timeout": LIMIT,
    "check": False,
}


def copy(folder: Path, mutant: Mutant) -> None:
    """Copy the package, its tests and their harness, and seed the fault."""
    for name in ("sensorpool", "harness", "tests"):
        shutil.copytree(HERE / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(HERE / "pyproject.toml", folder)
    for edit in mutant.edits:
        path = folder / "sensorpool" / edit.file
        text = path.read_text()
        assert text.count(edit.old) == 1, (
            f"{mutant.name}: {edit.old!r} occurs {text.count(edit.old)} times in {edit.file}"
        )
        path.write_text(text.replace(edit.old, edit.new))


def command(mutant: Mutant, seed: int) -> list[str]:
    """Return the command of one run."""
    chosen = ["-k", mutant.store] if mutant.tests.endswith("stateful") else []
    options = ["-x", "-q", "--tb=short", "--color=no", "-p", "no:cacheprovider", f"--hypothesis-seed={seed}"]
    return [sys.executable, "-m", "pytest", mutant.tests, *chosen, *options]


def environment(postgres: str | None, examples: int) -> dict[str, str]:
    """Return the environment of a run: our PostgreSQL, and no files beside the tests."""
    mine = {"SENSORPOOL_TEST_HUNT": str(examples), "PYTHONDONTWRITEBYTECODE": "1"}
    if postgres is not None:
        mine["SENSORPOOL_TEST_DATABASE_URL"] = postgres
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | mine


def chosen(rng: random.Random) -> list[Mutant]:
    """Return the mutants of this run, in the order of their list."""
    if ALL:
        return list(MUTANTS)
    taken = set(rng.sample(range(len(MUTANTS)), len(MUTANTS) // 17))
    return [mutant for number, mutant in enumerate(MUTANTS) if number in taken]


def test_every_mutant_is_caught(
    tmp_path: Path, postgres_server: Server | Elsewhere, capsys: pytest.CaptureFixture[str], rng: random.Random
) -> None:
    url = postgres_server.start().url
    none = [Mutant(f"none, {store}", (), ("nobody",), store) for store in ("sqlite", "postgres")]
    none.append(Mutant("none, the lease's tests", (), ("nobody",), tests="tests/unit/test_lease.py"))
    mutants = [*none, *chosen(rng)] if ALL else chosen(rng)  # the stateful test and the lease's tests run beside this
    with ThreadPoolExecutor(AT_ONCE) as pool:
        hunts = list(
            pool.map(
                lambda numbered: hunt(
                    tmp_path / str(numbered[0]), numbered[1], url, SEEDS[:1] if numbered[1] in none else SEEDS
                ),
                enumerate(mutants),
            )
        )
    table = "\n".join(
        f"{mutant.name:50} {each.seconds:5.1f} s  {each.caught_by}" for mutant, each in zip(mutants, hunts, strict=True)
    )
    with capsys.disabled():
        print(f"\n{'mutant':50} seconds  caught by\n{table}")
    wrong = [
        f"{mutant.name}: caught by {each.caught_by}, not by {' or '.join(mutant.caught_by)}\n{each.output[-3000:]}"
        for mutant, each in zip(mutants, hunts, strict=True)
        if each.caught_by not in mutant.caught_by
    ]
    assert not wrong, "\n\n".join(wrong)
