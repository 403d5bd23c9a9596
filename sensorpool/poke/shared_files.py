"""One look at a folder for many files: a file whose name is not in it is not there."""

import os
import posixpath
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from sensorpool.poke.shared_call import Question
from sensorpool.sensors.path import local_path
from sensorpool.sensors.tree import has_magic

FEWEST = 8  # files of one folder that are worth one look
_MOST = 100_000  # names: a folder with more is not listed for some files


def question_of(path: str) -> Question | None:
    """Return the question for a file by its folder; None: its path has a pattern in it, or names no file."""
    folder, name = posixpath.split(path)
    if not folder or name in {"", ".", ".."} or has_magic(path) or "\0" in path:
        return None
    return Question(folder, name)


def in_folder(folder: str, names: Sequence[str]) -> Sequence[bool]:
    """Return for each name whether such a file may be in a folder.

    Letters of another case, and accents that are spelt in another way, count as equal: to some filesystems they are.

    :raises OSError: when the folder cannot be listed.
    """
    if len(names) < FEWEST:
        return [True] * len(names)
    wanted = [_spelt(name) for name in names]
    missing = set(wanted)
    try:
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                missing.discard(_spelt(entry.name))
                if not missing or number > _MOST:
                    break
            else:
                return [name not in missing for name in wanted]
    except (FileNotFoundError, NotADirectoryError):
        return [False] * len(names)
    return [True] * len(names)


def _spelt(name: str) -> str:
    return name if name.isascii() and name.islower() else unicodedata.normalize("NFC", name).casefold()


class Folders:
    """The shared call of `sensorpool.sensors.PathSensor`, for paths of this machine."""

    def question(self, poke_context: Mapping[str, Any]) -> Question | None:
        """Return the question of a context."""
        path = poke_context.get("path")
        if not isinstance(path, str) or poke_context.get("conn_id") is not None:
            return None
        path = local_path(path)
        return question_of(path) if path.startswith("/") else None

    def ask(self, kin: str, asked: Sequence[str]) -> Sequence[bool]:
        """Look at a folder."""
        return in_folder(kin, asked)


def of_path_sensor(cls: type, found: Any) -> Folders:  # noqa: ARG001  # as every entry point of shared calls
    """Return the shared call of PathSensor."""
    return Folders()
