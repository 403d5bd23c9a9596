"""Remote files, through fsspec: any file that has a URL and an fsspec implementation."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from ftplib import FTP
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import fsspec
from fsspec.registry import registry

from sensorpool.errors import CannotPoke, SettingsError
from sensorpool.sensors.connections import PokeFailed, one_line, server_of, shown_url
from sensorpool.sensors.failures import NOT_THERE, as_infra_failure, real_error
from sensorpool.sensors.ftp_tree import FtpTree
from sensorpool.sensors.shared import Shared
from sensorpool.sensors.tree import Entry, Tree, hiding_no_other

Answer = TypeVar("Answer")
Key = tuple[str, str, int]

MAX_FILESYSTEMS = 256  # more than are in use at once: one that is dropped is closed
_filesystems: Shared[Key, Any] = Shared(MAX_FILESYSTEMS, lambda dropped: getattr(dropped, "close", bool)())

# the field of the last change in the implementations of sshfs, s3, azure, webdav, gcs, smb
_MODIFIED_FIELDS = ("mtime", "LastModified", "last_modified", "modified", "updated", "last_write_time")


class _OptionsRefused(Exception):
    """A constructor refused the options of a connection."""


def known_protocols() -> frozenset[str]:
    """Return the protocols that fsspec knows, whether or not their packages are installed here."""
    return frozenset((*fsspec.available_protocols(), *registry))


def ask(url: str, options: Mapping[str, Any], question: Callable[[Tree, str], Answer], *, name: str = "") -> Answer:
    """Ask a question about the URL; return its answer. The filesystem is kept for the next question if possible.

    :param options: of a connection. They go to no server but the one that they name.
    :param question: is called with the tree and the URL's path in it, perhaps twice.
    :param name: the variable that the options come from.
    :raises InfraFailure: when the filesystem cannot be reached.
    :raises CannotPoke: when its package is not installed here.
    :raises SettingsError: when its constructor refuses the options, or they name no server. Their values are hidden.
    :raises PermissionError: when the path may not be looked at.
    :raises PokeFailed: when the filesystem refuses, or the URL is on another server than the connection's.
    """
    secrets = list(_texts(options))
    try:
        return _ask(url, options, question, name)
    except _OptionsRefused as error:
        raise SettingsError(f"{name}: {_protocol(url)}:// refuses its options: {one_line(error, secrets)}") from None
    except (PokeFailed, SettingsError):
        raise
    except PermissionError as error:
        raise PermissionError(f"{shown_url(url)}: {one_line(error, secrets)}" + (name and f" ({name})")) from error
    except ImportError as error:
        raise CannotPoke(f"{_protocol(url)}:// needs a package on this worker: {one_line(error)}") from error
    except Exception as error:
        reason = f"{shown_url(url)}: {type(error).__name__}: {one_line(error, secrets)}" + (name and f" ({name})")
        raise as_infra_failure(error, reason) or PokeFailed(reason) from error


def _ask(url: str, options: Mapping[str, Any], question: Callable[[Tree, str], Answer], name: str) -> Answer:
    implementation = _implementation(_protocol(url))
    of_url = implementation._get_kwargs_from_urls(url)
    if "host" in of_url:
        of_url["host"] = urlsplit(url).hostname  # fsspec does not read [::1]
    names_server = "host" in of_url
    if options and names_server:
        _check_server(url, options, name)
        options = {option: value for option, value in options.items() if option != "base_url"}
    arguments = {
        # fsspec takes what follows a # in a name for an option
        **{option: value for option, value in of_url.items() if option not in ("url_query", "url_fragment")},
        **options,
        "skip_instance_cache": True,  # fsspec's own cache has no bound
    }
    if isinstance(arguments.get("auth"), list):  # JSON has no tuples, and httpx takes no list
        arguments["auth"] = tuple(arguments["auth"])

    def make() -> Any:
        try:
            return implementation(**arguments)
        except FileNotFoundError:
            raise _OptionsRefused("they name a file, such as a key, that is not on this worker") from None
        except (TypeError, ValueError) as error:
            if not options or as_infra_failure(error, ""):
                raise
            raise _OptionsRefused(f"{type(error).__name__}: {error}") from error

    def ask_through(filesystem: Any) -> Answer:
        filesystem.invalidate_cache()  # with an old listing, a sensor would never hold
        try:
            return question(tree_of(filesystem), filesystem._strip_protocol(url) or ("/" if names_server else ""))
        finally:
            filesystem.invalidate_cache()  # or listings of whole buckets would stay in memory

    if not implementation.cachable:
        return ask_through(make())
    key = _protocol(url), json.dumps(arguments, sort_keys=True, default=str)
    # asynchronous ones are safe to share. Of the others each is for one thread at a time
    with nullcontext(0) if implementation.async_impl else _filesystems.numbered(key) as number:
        place = (*key, number)
        was_kept = _filesystems.find(place) is not None
        while True:
            filesystem = _filesystems.get(place, make)
            try:
                return ask_through(filesystem)
            except PokeFailed:
                raise
            except Exception:
                _filesystems.drop(place, filesystem)
                if not was_kept:
                    raise
                # an idle connection may be dead, and credentials may have been rotated: ask once more over a new one
                was_kept = False


def _implementation(protocol: str) -> Any:
    if protocol not in ("sftp", "ssh"):
        return fsspec.get_filesystem_class(protocol)
    from sensorpool.sensors.sftp import SftpFileSystem  # late: paramiko is optional

    return SftpFileSystem


def _check_server(url: str, options: Mapping[str, Any], name: str) -> None:
    """Refuse a URL that is not on the server that a connection names: anybody who registers chooses the URL."""
    own, port = options.get("base_url"), options.get("port")
    if own is None and isinstance(options.get("host"), str):
        own = f"{_protocol(url)}://{options['host']}"
    if not isinstance(own, str):
        example = urlsplit(url)._replace(path="/", query="", fragment="").geturl()
        raise SettingsError(f'{name} names no server: add a "base_url" like "{shown_url(example)}"')
    if not _is_below(url, own, port):
        raise PokeFailed(f"{shown_url(url)} is not below {shown_url(own)}, which {name} is for")


def _is_below(url: str, base: str, port: object) -> bool:
    """Whether a URL is on the server of another one, and below its path.

    :param port: that of URLs without one, if it is not the protocol's.
    """
    try:
        is_there = server_of(url, port) == server_of(base, port)
    except ValueError:
        return False
    return is_there and f"{urlsplit(url).path}/".startswith(f"{urlsplit(base).path.rstrip('/')}/")


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in a value of JSON: any of them may be a secret."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)


def _protocol(url: str) -> str:
    return url.partition("://")[0]


def tree_of(filesystem: Any) -> Tree:
    """Return an fsspec filesystem as a tree.

    FTP and SFTP are asked by their own clients: fsspec's listings of them leave out what a sensor has to know.
    """
    client = getattr(filesystem, "ftp", None)
    if isinstance(client, FTP):
        return FtpTree(client)
    if (make := getattr(filesystem, "as_tree", None)) is not None:
        tree: Tree = make()
        return tree
    return RemoteTree(filesystem)


class RemoteTree:
    """An fsspec filesystem as a tree."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem
        # webdav4 takes paths as in a URL, and lists names
        self._path = quote if "webdav" in filesystem.protocol else str
        self.refused: list[Exception] = []

    def look(self, path: str) -> Entry | None:
        """Return the entry at the path, or None."""
        try:
            return self._followed(path, self._filesystem.info(self._path(path)))
        except Exception as error:
            if other := real_error(error):
                raise other from other.__cause__
            return None

    def scan(self, folder: str, wanted: Callable[[str], bool]) -> Iterator[Entry]:
        """Yield the entries of the folder that have a wanted name."""
        try:
            listing = self._filesystem.ls(self._path(folder), detail=True)
        except Exception as error:
            if other := real_error(error):
                raise other from other.__cause__
            return
        inside = f"/{folder.strip('/')}".rstrip("/")
        for info in listing:
            # object stores list a folder's own marker in it, and some list a file as its own content
            place, _, name = f"/{str(info['name']).strip('/')}".rpartition("/")
            if place != inside or not name or not wanted(name):
                continue
            entry = None
            with hiding_no_other(self):  # a link into a closed folder, a size that is no number
                entry = self._followed(f"{folder.rstrip('/')}/{name}", info)
            if entry is not None:
                yield entry

    def modified(self, entry: Entry) -> float | None:
        """Return when the file was last modified, now if it is gone; None: the filesystem does not tell."""
        if entry.modified is not None:
            return entry.modified
        try:
            return _seconds(self._filesystem.modified(self._path(entry.path)))
        except (NotImplementedError, KeyError):
            return None
        except FileNotFoundError:
            return time.time()

    def _followed(self, path: str, info: Mapping[str, Any]) -> Entry | None:
        """Return an entry of a listing; of a link what it leads to, or None."""
        if not str(info.get("type")).lower().endswith("link"):
            return _entry(path, info)
        try:
            return replace(_entry(path, self._filesystem.info(self._path(path))), is_link=True)
        except NOT_THERE:
            return None


def _entry(path: str, info: Mapping[str, Any]) -> Entry:
    size = info.get("size")
    times = [_seconds(info.get(name)) for name in _MODIFIED_FIELDS]
    if isinstance(of_hdfs := info.get("modificationTime"), int):
        times = [of_hdfs / 1000]  # milliseconds
    return Entry(
        path=path,
        is_file=info.get("type") == "file",
        is_folder=info.get("type") == "directory",
        is_link=bool(info.get("islink")),
        size=int(size) if size is not None else None,
        modified=next((each for each in times if each is not None), None),
    )


def _seconds(value: object) -> float | None:
    """Read a time in any form of the implementations: seconds, a datetime, ISO 8601; UTC by default."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    return float(value) if isinstance(value, int | float) else None
