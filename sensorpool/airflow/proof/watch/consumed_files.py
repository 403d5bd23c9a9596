"""Files that a poke moves or removes: in the pool it is denied before that, and each task takes its own on its worker.

A poke of the pool answers all tasks that wait for the same condition, and may be repeated: a file can be moved once.
"""

import os
import sys
import tempfile
from functools import cache
from typing import Any

from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow.proof.state import references
from sensorpool.airflow.proof.state.judged_class import judged_class_of
from sensorpool.airflow.proof.watch import denials

_TAKES = {
    "os.rename": "moves",
    "os.remove": "removes",
    "os.rmdir": "removes",
    "shutil.move": "moves",
    "shutil.rmtree": "removes",
}


@cache
def deny_consumption() -> None:
    """Deny pokes of this process, one of the pool's, to move or remove a file: they raise `OnlyOnWorker`.

    Not denied are temporary files, files that do not exist, and what the code of a library does.
    """
    sys.addaudithook(_on_event)  # Python has no way to remove a hook


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _TAKES or not denials.is_poke_thread() or _is_relative(event, arguments):
        return
    path = os.fsdecode(arguments[0])
    if os.path.lexists(path) and not _is_temporary(path) and _is_companys(sys._getframe(1)):
        raise denials.deny(f"its poke {_TAKES[event]} {path}: each task that waits for it has to take its own")


def _is_relative(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether a path is relative to an open folder: `shutil.rmtree` removes so, and its own event came before."""
    return not isinstance(arguments[0], str | bytes | os.PathLike) or (
        event.startswith("os.") and arguments[2 if event == "os.rename" else 1] not in (-1, None)
    )


def _is_temporary(path: str) -> bool:
    folder = os.path.realpath(tempfile.gettempdir())
    return os.path.commonpath([folder, os.path.realpath(os.path.dirname(path) or ".")]) == folder


def _is_companys(frame: Any) -> bool:
    """Whether the innermost frame outside the standard library runs code of the company of the sensor or its hook."""
    first: str | None = None
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.startswith("importlib."):
            return False  # an import writes a compiled module, and moves it into place
        if first is None and module.partition(".")[0] not in sys.stdlib_module_names:
            first = module
        sensor = frame.f_locals.get("sensor") if module.startswith("sensorpool.airflow.pool.") else None
        if isinstance(sensor, BaseSensorOperator):
            companies = map(references.company_of, (judged_class_of(sensor), *denials.hooks_here()))
            return first is not None and any(references.is_of_company(company, first) for company in companies)
        frame = frame.f_back
    return False
