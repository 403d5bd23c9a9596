"""Patches of the whole process (`gevent.monkey.patch_all`, `eventlet.monkey_patch`) are refused where the pool pokes.

They replace locks, threads and sockets of the standard library, under the jobs and the pokes of all other classes: the
process would stop. So their modules cannot be imported here. A class that does so cannot be poked. All others go on.
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from sensorpool.errors import SettingsError

_PATCHERS = frozenset({"gevent.monkey", "eventlet"})
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
    """Refuse, from now on, the import of what would patch this process."""
    if not any(isinstance(finder, _Refuser) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Refuser())


class _Refuser(MetaPathFinder, Loader):
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in _PATCHERS else None

    def exec_module(self, module: ModuleType) -> None:
        raise ImportError(f"{module.__name__} would patch the locks and threads of all pokes in this process: {_MEND}")
