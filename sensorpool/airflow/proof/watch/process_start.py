"""The environment at the start of a task's process, before the task's own code runs.

Airflow forks a process for each task. Then a DAG file, a policy, a constructor or `pre_execute` may change the
environment, and the pool's process has no such change. Airflow loads this module in each of its processes
(`sensorpool.airflow.policy`), so it has few imports.
"""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

_started: Mapping[bytes, bytes] | None = None
_loaded_at = time.time()
_began: float | None = None


def watch() -> None:
    """Remember the environment now, and again at the start of each process forked from this one."""
    remember()
    with suppress(AttributeError):  # not every system can fork
        os.register_at_fork(after_in_child=remember)


def loaded_at() -> float:
    """Return when this process, or the one that it was forked from, loaded Airflow: in seconds since 1970."""
    return _loaded_at


def remember() -> None:
    """Remember the environment of this moment as that of the process's start."""
    global _started, _began
    _started, _began = _now(), time.time()


def forget() -> None:
    """Forget the environment of the start: then no name counts as changed."""
    global _started, _began
    _started = _began = None


def began() -> float | None:
    """Return when this process started, in seconds since 1970; None if that is not known."""
    return _began


def has(name: str) -> bool:
    """Whether a name is in the environment now; a watched environment does not note this read."""
    now = _now()
    return now is not None and os.fsencode(name) in now


def changed() -> frozenset[str]:
    """Return the names in the environment that were changed, added or removed since the start."""
    now = _now()
    return frozenset() if now is None else _differing(now)


def gone() -> frozenset[str]:
    """Return the names that were removed from the environment since the start."""
    now = _now()
    return frozenset() if now is None else frozenset(os.fsdecode(name) for name in (_started or {}) if name not in now)


def changed_in_c() -> frozenset[str]:
    """Return the changed names in the environment of libraries in C: `os.putenv` changes that one alone."""
    now = None if _started is None else _now_in_c()
    return frozenset() if now is None else _differing(now)


def _differing(now: Mapping[bytes, bytes]) -> frozenset[str]:
    if _started is None or now == _started:
        return frozenset()
    names = now.keys() | _started.keys()
    return frozenset(os.fsdecode(name) for name in names if now.get(name) != _started.get(name))


def _now() -> Mapping[bytes, bytes] | None:
    data = vars(os.environ).get("_data")  # not by the methods of a watched `os.environ`
    if not isinstance(data, dict) or os.name != "posix":
        return None
    return data.copy()


def _now_in_c() -> Mapping[bytes, bytes] | None:
    with suppress(Exception):  # not every system has this name
        import ctypes

        found: dict[bytes, bytes] = {}
        entries: Any = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
        for entry in entries:
            if entry is None:
                return found
            name, _, value = entry.partition(b"=")
            found.setdefault(name, value)
    return None
