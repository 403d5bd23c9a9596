"""The version of the code that is measured. A long run that was cut off does not measure the same code again."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
_MEASURED = ("sensorpool", "migrations", "harness", "benchmarks", ":!benchmarks/results", "constraints.txt")


def code_version() -> str | None:
    """Return the last commit of what is measured; None: it has changes that are in no commit, or Git is not there."""
    try:
        if _git("status", "--porcelain", "--", *_MEASURED):
            return None
        return _git("log", "-1", "--format=%H", "--", *_MEASURED) or None
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()
