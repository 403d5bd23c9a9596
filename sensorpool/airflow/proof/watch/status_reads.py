"""What a look at the status of a job asks of the environment of its process, where its task has changed that.

Such a look may start a program, which finds the whole environment: what it reads there is not seen.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from sensorpool.airflow.proof.watch import environment_reads

_PROGRAMS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.exec", "os.spawn", "os.system"})
_note: Callable[[str], object] | None = None
_what = ""


@contextmanager
def noting(note: Callable[[str], object]) -> Iterator[None]:
    """Note what is asked, and programs that are started, where a task has changed the environment."""
    global _note, _what
    names = environment_reads.changed_by_task()
    if names:
        _hook()
        _note = note
        _what = f"starts a program, and its task has changed {min(names)} in the environment"
    try:
        with environment_reads.noting_changes(note):
            yield
    finally:
        _note = None


@cache
def _hook() -> None:
    sys.addaudithook(_hear)  # it cannot be taken away


def _hear(event: str, _: tuple[Any, ...]) -> None:
    if _note is not None and event in _PROGRAMS:
        _note(_what)
