"""Remote files, through fsspec: any file that has a URL and an fsspec implementation."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import fsspec
from fsspec.registry import registry

from sensorpool.errors import CannotPoke
from sensorpool.sensors.connections import PokeFailed, one_line, shown_url
from sensorpool.sensors.failures import as_infra_failure
from sensorpool.sensors.shared import Shared
from sensorpool.sensors.tree import Entry

Answer = TypeVar("Answer")
Key = tuple[str, str, int]

MAX_FILESYSTEMS = 64
_filesystems: Shared[Key, Any] = Shared(MAX_FILESYSTEMS)

_NOT_THERE = (FileNotFoundError, NotADirectoryError)
# the field of the last change in the implementations of sftp, s3, azure, gcs, ftp
_MODIFIED_FIELDS = ("mtime", "LastModified", "last_modified", "updated", "modify")


def known_protocols() -> frozenset[str]:
    """Return the protocols that fsspec knows, whether or not their packages are installed here."""
    return frozenset((*fsspec.available_protocols(), *registry))


def ask(url: str, options: Mapping[str, Any], question: Callable[["RemoteTree", str], Answer]) -> Answer:
    """Ask a question about the URL; return its answer. The filesystem is kept for the next question if possible.

    :param question: is called with the tree and the URL's path in it, perhaps twice.
    :raises InfraFailure: when the filesystem cannot be reached.
    :raises CannotPoke: when its package is not installed here.
    :raises PokeFailed: when the filesystem refuses.
    """
    secrets = [value for value in options.values() if isinstance(value, str)]
    try:
        return _ask(url, options, question)
    except (PokeFailed, PermissionError):
        raise
    except ImportError as error:
        raise CannotPoke(f"{_protocol(url)}:// needs a package on this worker: {one_line(error)}") from error
    except Exception as error:
        reason = f"{shown_url(url)}: {type(error).__name__}: {one_line(error, secrets)}"
        raise as_infra_failure(error, reason) or PokeFailed(reason) from error


def _ask(url: str, options: Mapping[str, Any], question: Callable[["RemoteTree", str], Answer]) -> Answer:
    implementation = fsspec.get_filesystem_class(_protocol(url))
    arguments = {
        **implementation._get_kwargs_from_urls(url),
        **options,
        "use_listings_cache": False,  # with an old listing, a sensor would never hold
        "skip_instance_cache": True,  # fsspec's own cache has no bound
    }

    def make() -> Any:
        return implementation(**arguments)

    def ask_through(filesystem: Any) -> Answer:
        filesystem.invalidate_cache()
        return question(RemoteTree(filesystem), filesystem._strip_protocol(url))

    if not implementation.cachable:
        return ask_through(make())
    # fsspec's rule: the async implementations are safe to share, the others belong to one thread
    owner = 0 if implementation.async_impl else threading.get_ident()
    key = (_protocol(url), json.dumps(arguments, sort_keys=True, default=str), owner)
    kept = _filesystems.find(key)
    if kept is not None:
        try:
            return ask_through(kept)
        except (PokeFailed, PermissionError):
            raise
        except Exception:
            # an idle connection may be dead: ask once more over a new one
            _filesystems.drop(key, kept)
    fresh = _filesystems.get(key, make)
    try:
        return ask_through(fresh)
    except (PokeFailed, PermissionError):
        raise
    except Exception:
        _filesystems.drop(key, fresh)
        raise


class RemoteTree:
    """An fsspec filesystem as a tree."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem
        self.refused: list[PermissionError] = []

    def look(self, path: str) -> Entry | None:
        """Return the entry at the path, or None."""
        try:
            return _entry(self._filesystem.info(path))
        except _NOT_THERE:
            return None

    def scan(self, folder: str, wanted: Callable[[str], bool]) -> Iterator[Entry]:
        """Yield the entries of the folder that have a wanted name."""
        try:
            listing = self._filesystem.ls(folder, detail=True)
        except _NOT_THERE:
            return
        inside = f"{folder.rstrip('/')}/"
        for info in listing:
            path = str(info["name"]).rstrip("/")
            # object stores list a folder's own marker in it, and some list a file as its own content
            if path.startswith(inside) and wanted(path[len(inside) :]):
                yield _entry(info)

    def modified(self, entry: Entry) -> float:
        """Return when the file was last modified.

        :raises PokeFailed: when the filesystem does not tell.
        """
        if entry.modified is not None:
            return entry.modified
        try:
            told = _seconds(self._filesystem.modified(entry.path))
        except (NotImplementedError, KeyError):
            told = None
        if told is None:
            raise PokeFailed("this filesystem does not tell when a file was modified: leave out min_age")
        return told


def _protocol(url: str) -> str:
    return url.partition("://")[0]


def _entry(info: Mapping[str, Any]) -> Entry:
    size = info.get("size")
    times = (_seconds(info.get(name)) for name in _MODIFIED_FIELDS)
    return Entry(
        path=str(info["name"]).rstrip("/"),
        is_file=info.get("type") == "file",
        is_folder=info.get("type") == "directory",
        is_link=bool(info.get("islink")),
        size=int(size) if size is not None else None,
        modified=next((told for told in times if told is not None), None),
    )


def _seconds(told: object) -> float | None:
    """Read a time in any form of the implementations: seconds, a datetime, ISO 8601, FTP's digits; UTC by default."""
    if isinstance(told, str):
        try:
            # FTP's digits are ISO 8601 without the T
            told = datetime.fromisoformat(told if "-" in told else f"{told[:8]}T{told[8:14]}")
        except ValueError:
            return None
    if isinstance(told, datetime):
        return (told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp()
    return float(told) if isinstance(told, int | float) else None
