"""The environment that a task's process started with: as Airflow handed it over, before any code of the task's own.

Airflow forks a process for each task. From there on a DAG file, a policy, a constructor or `pre_execute` may change the
environment, and the pool's process knows nothing of that. Airflow loads this module in each of its processes
(`sensorpool.airflow.policy`), so it imports next to nothing.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

_started: Mapping[bytes, bytes] | None = None


def watch() -> None:
    """Remember the environment now, and again in each process that is forked from this one."""
    remember()
    with suppress(AttributeError):  # not every system forks
        os.register_at_fork(after_in_child=remember)


def remember() -> None:
    """Take the environment as it is now for that which the process started with."""
    global _started
    _started = _now()


def forget() -> None:
    """Know nothing of how the process started: then nothing counts as changed."""
    global _started
    _started = None


def has(name: str) -> bool:
    """Whether a name is in the environment now; no watch of the environment hears of it."""
    now = _now()
    return now is not None and os.fsencode(name) in now


def changed() -> frozenset[str]:
    """Return the names in the environment that have another value than at the start, and those added or gone."""
    now = _now()
    return frozenset() if now is None else _differing(now)


def gone() -> frozenset[str]:
    """Return the names that were in the environment at the start, and are not now."""
    now = _now()
    return frozenset() if now is None else frozenset(os.fsdecode(name) for name in (_started or {}) if name not in now)


def changed_in_c() -> frozenset[str]:
    """Return the same for the environment that libraries in C see: `os.putenv` changes that one alone."""
    now = None if _started is None else _now_in_c()
    return frozenset() if now is None else _differing(now)


def _differing(now: Mapping[bytes, bytes]) -> frozenset[str]:
    if _started is None or now == _started:
        return frozenset()
    names = now.keys() | _started.keys()
    return frozenset(os.fsdecode(name) for name in names if now.get(name) != _started.get(name))


def _now() -> Mapping[bytes, bytes] | None:
    data = vars(os.environ).get("_data")  # past what watches `os.environ`
    if not isinstance(data, dict) or os.name != "posix":
        return None
    return data.copy()


def _now_in_c() -> Mapping[bytes, bytes] | None:
    with suppress(Exception):  # not every system has it under this name
        import ctypes

        found: dict[bytes, bytes] = {}
        entries: Any = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
        for entry in entries:
            if entry is None:
                return found
            name, _, value = entry.partition(b"=")
            found.setdefault(name, value)
    return None
