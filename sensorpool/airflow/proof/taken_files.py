"""Files that a poke takes away: in the pool it goes back to its workers before it does, where each task takes its own.

A poke of the pool answers all who wait for the same condition, and may be made again: a file can be moved once.
"""

import os
import sys
import tempfile
from functools import cache
from typing import Any

from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow import errors
from sensorpool.airflow.proof import reach

_TAKES = {
    "os.rename": "moves",
    "os.remove": "removes",
    "os.rmdir": "removes",
    "shutil.move": "moves",
    "shutil.rmtree": "removes",
}


@cache
def refuse() -> None:
    """Have pokes of this process, which is the pool's, raise `OnlyOnWorker` when they would take a file away.

    Not so where the code of a library does, where it is a temporary file, and where it is not there.
    """
    sys.addaudithook(_hear)  # it cannot be taken away


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _TAKES or not errors.pokes_here() or _is_relative(event, arguments):
        return
    path = os.fsdecode(arguments[0])
    if os.path.lexists(path) and not _is_temporary(path) and _is_companys(sys._getframe(1)):
        raise errors.refuse(f"its poke {_TAKES[event]} {path}: each task that waits for it has to take its own")


def _is_relative(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether a path is of a folder that was opened: `shutil.rmtree` removes what is in it so, and was heard before."""
    return not isinstance(arguments[0], str | bytes | os.PathLike) or (
        event.startswith("os.") and arguments[2 if event == "os.rename" else 1] not in (-1, None)
    )


def _is_temporary(path: str) -> bool:
    folder = os.path.realpath(tempfile.gettempdir())
    return os.path.commonpath([folder, os.path.realpath(os.path.dirname(path) or ".")]) == folder


def _is_companys(frame: Any) -> bool:
    """Whether the first frame that is not the standard library's is of the company of the sensor that is poked."""
    first: str | None = None
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.startswith("importlib."):
            return False  # a module's compiled file is put in its place
        if first is None and module.partition(".")[0] not in sys.stdlib_module_names:
            first = module
        sensor = frame.f_locals.get("sensor") if module.startswith("sensorpool.airflow.pool.") else None
        if isinstance(sensor, BaseSensorOperator):
            return first is not None and reach.is_of(type(sensor).__module__.partition(".")[0], first)
        frame = frame.f_back
    return False
