"""Reads of the environment by a request for the status of a job, where the task has changed names.

Such a request may start a program, which has the whole environment: its reads cannot be seen.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from sensorpool.airflow.proof.watch import environment_reads

_PROGRAMS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.exec", "os.spawn", "os.system"})
_note: Callable[[str], object] | None = None
_program_note = ""


@contextmanager
def noting(note: Callable[[str], object]) -> Iterator[None]:
    """Note reads of names that the task has changed, and, if it has changed any, programs that are started."""
    global _note, _program_note
    names = environment_reads.changed_by_task()
    if names:
        _hook()
        _note = note
        _program_note = f"starts a program, and its task has changed {min(names)} in the environment"
    try:
        with environment_reads.noting_changes(note):
            yield
    finally:
        _note = None


@cache
def _hook() -> None:
    sys.addaudithook(_on_event)  # Python has no way to remove a hook


def _on_event(event: str, _: tuple[Any, ...]) -> None:
    if _note is not None and event in _PROGRAMS:
        _note(_program_note)
