"""Whether the names in ``infra_failures`` are exception classes: with a typo there, an outage fails sensors.

A class that this process does not have is no typo: another process may have it. As ``python -m`` this module checks
the names in a process of its own, so that a worker imports nothing of its users before it forks.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from sensorpool.config.defaults import INFRA_FAILURES
from sensorpool.config.settings import Settings
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.words import nearest

_LIMIT = 60.0  # seconds that imports may take


class Doubt(NamedTuple):
    """A problem with a name, or a possible one."""

    is_typo: bool  # wrong in every process that has its module
    said: str


def named_by_users(settings: Settings) -> list[str]:
    """Return the names that are no defaults: users listed these, and a process may lack a default."""
    return [name for name in settings.infra_failures if name not in INFRA_FAILURES]


def doubts(names: Sequence[str]) -> list[Doubt]:
    """Import the classes of these names; return the problem of each name that has one."""
    return [Doubt(doubt.is_typo, f"INFRA_FAILURES: {doubt.said}") for name in names if (doubt := _doubt(name))]


def doubts_apart(names: Sequence[str]) -> list[Doubt]:
    """Return the same as `doubts` without an import in this process; nothing where the other process fails."""
    if not names:
        return []
    task = json.dumps([sys.path, list(names)])
    try:
        done = subprocess.run(
            [sys.executable, "-m", "sensorpool.config.infra_classes"],
            input=task,
            capture_output=True,
            text=True,
            timeout=_LIMIT,
            check=True,
        )
        return [Doubt(bool(is_typo), str(said)) for is_typo, said in json.loads(done.stdout.splitlines()[-1])]
    except (OSError, subprocess.SubprocessError, ValueError, TypeError, IndexError):
        return []


def _doubt(name: str) -> Doubt | None:
    module, _, last = name.rpartition(".")
    try:
        found = _find(module)
    except Exception as error:
        return Doubt(False, f"{name} cannot be imported here, so nothing counts as it: {one_line(error)}")
    if not hasattr(found, last):
        return Doubt(True, f"{module} has no {last}{nearest(last, dir(found))}: write it as 'pkg.mod.Class'")
    cls = getattr(found, last)
    if not (isinstance(cls, type) and issubclass(cls, BaseException)):
        return Doubt(True, f"{name} is no exception class")
    own = f"{cls.__module__}.{cls.__qualname__}"
    return None if own == name else Doubt(False, f"nothing counts as {name}: its own name is {own}, write that")


def _find(path: str) -> Any:
    """Return a module, or a class in a module.

    :raises ImportError: when the path is neither.
    """
    try:
        return import_module(path)
    except ModuleNotFoundError as error:
        module, _, last = path.rpartition(".")
        if not module or not path.startswith(f"{error.name}"):
            raise
        try:
            return getattr(_find(module), last)
        except AttributeError:
            raise error from None


if __name__ == "__main__":
    sys.path[:], asked = json.loads(sys.stdin.read())
    answer = doubts(asked)
    print()
    print(json.dumps(answer), flush=True)
