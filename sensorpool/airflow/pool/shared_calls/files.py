"""FileSensor: one look at a folder for all files in it."""

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.providers.standard.sensors.filesystem import FileSensor

from sensorpool.airflow.pool.shared_calls.by_operator import ByOperator, fits
from sensorpool.poke.shared_files import in_folder, question_of


class Folders(ByOperator):
    """Files by their folder; where it lies, the operator's Connection says."""

    shared = ("fs_conn_id",)
    known = ("filepath", "fs_conn_id", "recursive", "deferrable")

    def read(self, arguments: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return folder and name, as they stand in the argument."""
        path = arguments.get("filepath")
        question = question_of(path if "/" in path else f"./{path}") if isinstance(path, str) and path else None
        return None if question is None else (str(question.kin), question.asked)

    def answers(self, operator: Any, kin: str, asked: Sequence[str]) -> Sequence[bool]:  # noqa: ARG002
        """Look at the folder of the operator's path, which lies below its Connection's."""
        folder = posixpath.dirname(operator.path)
        return [True] * len(asked) if _is_odd(folder) else in_folder(folder, asked)


def _is_odd(folder: str) -> bool:
    """Whether a Connection's path has a pattern in it, to the native sensor."""
    return not folder or any(letter in folder for letter in "*?[")


def shared_call(cls: type, found: Any) -> Folders | None:
    """Return the shared call of FileSensor."""
    return Folders(found) if fits(cls, found, FileSensor) else None
