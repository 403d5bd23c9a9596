"""Remote files, through fsspec: any file that has a URL and an fsspec implementation."""

import errno
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from ftplib import FTP
from typing import Any, TypeVar

import fsspec
from fsspec.registry import registry

from sensorpool.errors import CannotPoke, SettingsError
from sensorpool.sensors import ftp_server
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
# how listings name a link: of sftp and smb, and of FTP's MLSD
_LINKS = ("link", "os.unix=slink", "os.unix=symlink")
# the first letter of a mode as `ls -l` shows it: a pipe, a socket, devices, a door
_NO_FILES = frozenset("pscbD")


class _OptionsRefused(Exception):
    """A constructor refused the options of a connection."""


def known_protocols() -> frozenset[str]:
    """Return the protocols that fsspec knows, whether or not their packages are installed here."""
    return frozenset((*fsspec.available_protocols(), *registry))


def ask(
    url: str, options: Mapping[str, Any], question: Callable[["RemoteTree", str], Answer], *, name: str = ""
) -> Answer:
    """Ask a question about the URL; return its answer. The filesystem is kept for the next question if possible.

    :param question: is called with the tree and the URL's path in it, perhaps twice.
    :param name: the variable that the options come from.
    :raises InfraFailure: when the filesystem cannot be reached.
    :raises CannotPoke: when its package is not installed here.
    :raises SettingsError: when its constructor refuses the options; the text hides their values.
    :raises PokeFailed: when the filesystem refuses.
    """
    secrets = list(_texts(options))
    try:
        return _ask(url, options, question)
    except _OptionsRefused as error:
        raise SettingsError(f"{name}: {_protocol(url)}:// refuses its options: {one_line(error, secrets)}") from None
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
        try:
            return implementation(**arguments)
        except (TypeError, ValueError) as error:
            if not options or as_infra_failure(error, ""):
                raise
            raise _OptionsRefused(f"{type(error).__name__}: {error}") from error

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
            return self._followed(self._filesystem.info(path))
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
                try:
                    entry = self._followed(info)
                except PermissionError as error:  # a link into a closed folder
                    self.refused.append(error)
                    continue
                if entry is not None:
                    yield entry

    def modified(self, entry: Entry) -> float:
        """Return when the file was last modified.

        :raises PokeFailed: when the filesystem does not tell.
        """
        if entry.modified is not None:
            return entry.modified
        try:
            if isinstance(ftp := self._ftp, FTP):
                told = _seconds(ftp_server.modified(ftp, entry.path))
            else:
                told = _seconds(self._filesystem.modified(entry.path))
        except (NotImplementedError, KeyError):
            told = None
        except FileNotFoundError:
            return time.time()  # it went away just now
        if told is None:
            raise PokeFailed("this filesystem does not tell when a file was modified: leave out min_age")
        return told

    def _followed(self, info: Mapping[str, Any]) -> Entry | None:
        """Return an entry of a listing; of a link what it leads to, or None."""
        if not _is_link(info):
            return _entry(info)
        path = str(info["name"]).rstrip("/")
        found: Mapping[str, Any] | None
        try:
            ftp = self._ftp
            found = ftp_server.target(ftp, path) if isinstance(ftp, FTP) else self._filesystem.info(path)
        except _NOT_THERE:
            return None
        except OSError as error:
            # a link to itself; servers of SFTP say no more than that it failed
            if error.errno not in (None, errno.ELOOP) or as_infra_failure(error, ""):
                raise
            return None
        return None if found is None else replace(_entry(found), is_link=True)

    @property
    def _ftp(self) -> object:
        """The connection of an FTP filesystem."""
        return getattr(self._filesystem, "ftp", None)


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in a value of JSON: any of them may be a secret."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)


def _protocol(url: str) -> str:
    return url.partition("://")[0]


def _is_link(info: Mapping[str, Any]) -> bool:
    return str(info.get("type")).lower().startswith(_LINKS) or str(info.get("unix.mode")).startswith("l")


def _entry(info: Mapping[str, Any]) -> Entry:
    size = info.get("size")
    is_no_file = str(info.get("unix.mode"))[:1] in _NO_FILES
    times = (_seconds(info.get(name)) for name in _MODIFIED_FIELDS)
    return Entry(
        path=str(info["name"]).rstrip("/"),
        is_file=info.get("type") == "file" and not is_no_file,
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
