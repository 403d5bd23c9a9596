"""The changes by a load: natively the process of a task loads one DAG file, and here a process loads several.

What a file has changed for its whole process is put back, so that no other file's sensors see it. Where its own may
need it, they go back to their workers.
"""

import importlib
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import PathFinder

from sensorpool.airflow.proof.state import references
from sensorpool.airflow.proof.watch import process_state


class LoadChanges:
    """What loads change in this process. For the thread that loads, while no poke goes on."""

    def __init__(self) -> None:
        self._own_path = [*sys.path]  # without what DAG files have added
        self._own_modules = frozenset(sys.modules)

    def begin(self) -> None:
        """Begin a load, with the import path of a process that has loaded nothing."""
        self._path, sys.path[:] = [*sys.path], self._own_path
        self._modules = frozenset(sys.modules)
        self._environment = _environment()
        self._folder = _folder()
        self._state = process_state.before_load()

    def end(self) -> str | None:
        """End a load; return why the sensors of the file cannot be poked here, or None if they can."""
        why = self._put_back()
        if why is None and (name := self._taken_from_elsewhere()) is not None:
            why = f"another DAG file of its bundle has imported a {name} from elsewhere"
        if why is not None:
            self._forget()
            return why
        # at the end: what a function of the file imports later is found, and nothing of another file is hidden
        sys.path[:] = [*self._path, *dict.fromkeys(each for each in sys.path if each not in self._path)]
        return None

    def fail(self) -> None:
        """End a load that has failed; what it has imported is imported again by the next one that needs it."""
        self._put_back()
        self._forget()

    def _put_back(self) -> str | None:
        """Put back what was changed; return what sensors of the file may need of it."""
        self._put_back_environment()
        names = self._state.changed()
        self._state.put_back(names)
        changed = [name for name in names if process_state.may_change_answers(name)]
        if self._folder is not None and _folder() != self._folder:
            changed.append("the working directory")
            with suppress(OSError):
                os.chdir(self._folder)
        return f"its load changes {changed[0]} of its process, which others share in the pool" if changed else None

    def _put_back_environment(self) -> None:
        """Put back the environment: a sensor that reads what its file has put there waits on its worker."""
        now = _environment()
        for name in now.keys() | self._environment.keys():
            value = self._environment.get(name)
            if value == now.get(name):
                continue
            if value is None:
                os.environ.pop(os.fsdecode(name), None)
            else:
                os.environ[os.fsdecode(name)] = os.fsdecode(value)
            if name == b"TZ":
                time.tzset()

    def _taken_from_elsewhere(self) -> str | None:
        """Return a module that others have imported, and which the import path of this load finds elsewhere."""
        importlib.invalidate_caches()
        for name in self._modules - self._own_modules:
            if references.is_written_here(name):
                found = _place_of(name, sys.path)
                if found is not None and found != vars(sys.modules[name])["__file__"]:
                    return name
        return None

    def _forget(self) -> None:
        for name in sys.modules.keys() - self._modules:
            if references.is_written_here(name):
                del sys.modules[name]
        sys.path[:] = self._path


def _environment() -> dict[bytes, bytes]:
    return dict(vars(os.environ)["_data"])  # not by the methods of a watched `os.environ`


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def _place_of(module: str, path: Sequence[str]) -> str | None:
    """Return the file that an import would take for a module; None if it finds none."""
    found, within = None, ""
    with suppress(Exception):  # finders of others may raise anything
        for part in module.split("."):
            within = f"{within}.{part}" if within else part
            spec = PathFinder.find_spec(within, path)
            if spec is None:
                return None
            found, path = spec.origin, list(spec.submodule_search_locations or ())
    return found
