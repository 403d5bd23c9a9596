"""Files and folders, local or remote: the files that match a pattern, and the files in a folder."""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

from sensorpool.sensors.failures import NOT_THERE, as_infra_failure

ANY_DEPTH = "**"
_MAGIC = frozenset("*?[")
_NO_TARGET = (errno.ELOOP, errno.ENAMETOOLONG)  # a link to itself, or to a name that no file can have


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, a folder, or neither (a pipe, a device).

    ``size`` is in bytes and ``modified`` in seconds since 1970 UTC. Each is None if the listing does not tell it.
    """

    path: str
    is_file: bool
    is_folder: bool
    is_link: bool = False
    size: int | None = None
    modified: float | None = None


class Tree(Protocol):
    """A filesystem as sensors ask it, for one poke. A missing file is no error: it is not there yet.

    What may not be looked at is kept in ``refused``, so that it does not hide what is beside it.
    """

    refused: list[Exception]

    def look(self, path: str) -> Entry | None:
        """Return the entry at the path, or None."""
        ...

    def scan(self, folder: str, wanted: Callable[[str], bool]) -> Iterator[Entry]:
        """Yield the entries of the folder that have a wanted name."""
        ...

    def modified(self, entry: Entry) -> float | None:
        """Return when the file was last modified, now if it is gone; None: the server does not tell."""
        ...


class LocalTree:
    """The filesystem of this machine. Links are followed; one that leads nowhere is not there."""

    def __init__(self) -> None:
        self.refused: list[Exception] = []

    def look(self, path: str) -> Entry | None:
        """Return the entry at the path, or None."""
        try:
            return _entry(path, os.stat(path), is_link=os.path.islink(path))
        except OSError as error:
            if not _leads_nowhere(path, error):
                raise
            return None

    def scan(self, folder: str, wanted: Callable[[str], bool]) -> Iterator[Entry]:
        """Yield the entries of the folder that have a wanted name."""
        try:
            listing = os.scandir(folder)
        except NOT_THERE:
            return
        with listing:
            for item in listing:
                if not wanted(item.name):
                    continue
                try:
                    yield _entry(item.path, item.stat(), is_link=item.is_symlink())
                except PermissionError as error:  # a link into a closed folder
                    self.refused.append(error)
                except OSError as error:
                    if not _leads_nowhere(item.path, error):
                        raise

    def modified(self, entry: Entry) -> float:
        """Return when the file was last modified."""
        return entry.modified or 0.0  # a stat always tells


def has_magic(name: str) -> bool:
    """Whether the name has a glob character."""
    return not _MAGIC.isdisjoint(name)


def matching(tree: Tree, folder: str, pattern: Sequence[str]) -> Iterator[Entry]:
    """Return what below the folder matches the pattern, given as its parts between slashes.

    As in a shell, ``*`` and ``?`` match no leading dot. ``**`` is any number of folders, not through links.
    """
    part, rest = pattern[0], pattern[1:]
    if part == ANY_DEPTH:
        if rest:
            yield from matching(tree, folder, rest)
        for entry in _scanned(tree, folder, _is_not_hidden):
            if not rest:
                yield entry
            if entry.is_folder and not entry.is_link:
                yield from matching(tree, entry.path, pattern)
        return
    if has_magic(part):
        found = _scanned(tree, folder, lambda name: fnmatchcase(name, part) and (name[0] != "." or part[0] == "."))
    elif rest:
        yield from matching(tree, f"{folder.rstrip('/')}/{part}", rest)
        return
    else:
        found = _looked_at(tree, f"{folder.rstrip('/')}/{part}")
    for entry in found:
        if not rest:
            yield entry
        elif entry.is_folder:
            yield from matching(tree, entry.path, rest)


def files_in(tree: Tree, folder: str) -> Iterator[Entry]:
    """Return the files in the folder and in the folders below it, not through links (as ``os.walk`` does)."""
    folders = [folder]
    while folders:
        for entry in _scanned(tree, folders.pop(), _any_name):
            if entry.is_file:
                yield entry
            elif entry.is_folder and not entry.is_link:
                folders.append(entry.path)


@contextmanager
def hiding_no_other(tree: Tree) -> Iterator[None]:
    """Note an error of one entry or folder in ``refused``; a failure of the infrastructure is raised."""
    try:
        yield
    except Exception as error:
        if as_infra_failure(error, ""):
            raise
        tree.refused.append(error)


def _scanned(tree: Tree, folder: str, wanted: Callable[[str], bool]) -> Iterator[Entry]:
    with hiding_no_other(tree):
        yield from tree.scan(folder, wanted)


def _looked_at(tree: Tree, path: str) -> Iterator[Entry]:
    with hiding_no_other(tree):
        if (entry := tree.look(path)) is not None:
            yield entry


def _leads_nowhere(path: str, error: OSError) -> bool:
    """Whether the error of a look at the path says that nothing is there, or a link without a target."""
    return isinstance(error, NOT_THERE) or (error.errno in _NO_TARGET and os.path.islink(path))


def _entry(path: str, status: os.stat_result, *, is_link: bool) -> Entry:
    mode = status.st_mode
    return Entry(path, stat.S_ISREG(mode), stat.S_ISDIR(mode), is_link, status.st_size, status.st_mtime)


def _is_not_hidden(name: str) -> bool:
    return not name.startswith(".")


def _any_name(_name: str) -> bool:
    return True
