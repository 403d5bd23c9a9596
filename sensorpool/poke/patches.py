"""Patches of the whole process (`gevent.monkey.patch_all`, `eventlet.monkey_patch`) are refused where the pool pokes.

They replace locks, threads and sockets of the standard library, under the jobs and the pokes of all other classes: the
process would stop. The refusal is an `ImportError`, so a class whose module asks for a patch is one that cannot be
poked here, and all others go on.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from sensorpool.errors import SettingsError

_PATCHERS = ("gevent.monkey", "eventlet.patcher", "eventlet")  # the modules that have functions which patch
_PATCHED = {"gevent.monkey": "is_module_patched", "eventlet.patcher": "is_monkey_patched"}
_PARTS = ("socket", "thread", "threading", "select", "time", "os")
_MEND = "leave the patch out, or leave its class to another pool's workers"


def refuse_patched() -> None:
    """Refuse to start in a process that is patched already.

    :raises SettingsError: with what patched it.
    """
    for name, asked in _PATCHED.items():
        is_patched = getattr(sys.modules.get(name), asked, None)
        if is_patched is not None and any(is_patched(part) for part in _PARTS):
            package = name.partition(".")[0]
            raise SettingsError(
                f"{package} has patched the locks and threads of this process, and the pool would stop in it: "
                "start it without that patch"
            )


def refuse_patches() -> None:
    """Refuse, from now on, what would patch this process; calls after the first have no effect."""
    for name in _PATCHERS:
        if (module := sys.modules.get(name)) is not None:
            _guard(module)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds the modules that patch as the other finders do, and guards them once they are loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _PATCHERS:
            return None
        for finder in sys.meta_path:
            if isinstance(finder, _Finder) or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    _guard_after(spec.loader)
                return spec
        return None


def _guard_after(loader: Any) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        if module.__name__ in _PATCHERS:
            _guard(module)

    loader.exec_module = exec_module


def _guard(module: ModuleType) -> None:
    """Replace the functions of a module that patch the process."""
    for name, value in list(vars(module).items()):
        is_patch = name == "monkey_patch" or (name.startswith("patch_") and module.__name__ == "gevent.monkey")
        if is_patch and callable(value) and not hasattr(value, "is_refusal"):
            setattr(module, name, _refusal(f"{module.__name__}.{name}"))


def _refusal(called: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> None:
        raise ImportError(f"{called}() would patch the locks and threads of all pokes in this process: {_MEND}")

    vars(refuse)["is_refusal"] = True
    return refuse
