"""A sensor for files, on this machine or wherever fsspec reaches."""

import os
import re
import stat
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from sensorpool.sensors import arguments
from sensorpool.sensors.connections import PokeFailed, connection, connection_object, shown_url, variable
from sensorpool.sensors.failures import as_infra_failure
from sensorpool.sensors.tree import Entry, LocalTree, Tree, files_in, has_magic, matching

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://", re.ASCII)
_LOCAL = ("file", "local")
_WEB = ("http", "https")


class PathSensor:
    """Holds when there is a file at a path.

    As with Airflow's FileSensor, the path may be a pattern, and a folder counts when a file lies in it or in
    a folder below it. A missing file is not there yet. A pipe, a device and a link to nothing are no files. What may
    not be looked at is an error, unless another file holds. So is a path that is a link to itself.

    :param path: an absolute path of this machine, or a URL that fsspec knows (``s3://bucket/key``,
        ``sftp://host/file``). ``*``, ``?`` and ``[...]`` match within a name (but no leading dot), ``**`` any
        number of folders; write ``[*]`` for a name that has such a character. A ``file://`` URI is percent-encoded,
        as ``Path.as_uri()`` writes it. Other URLs of files are not. What a web server has is for `HttpSensor`.
    :param min_age: seconds since the file was last modified, by the worker's clock: it is no longer being
        written. With 0, the time does not matter.
    :param min_size: bytes that the file must have. One file must satisfy both.
    :param unchanged_for: seconds since the last change of any file at the path or below it, by the worker's clock:
        nothing more is being written. With 0, the time does not matter.
    :param conn_id: names the connection with fsspec's storage options, a JSON object like ``{"key": …,
        "secret": …}``. For a URL that names a server it has a ``base_url`` too, and is for URLs below it only.
    :raises TypeError: when an argument is of the wrong type.
    :raises ValueError: when the path is relative, its protocol unknown or its URL has a password, when a pattern
        cannot match, and when an age or a size is negative.
    """

    __module__ = "sensorpool.sensors"  # one spelling of the class path, wherever the class is reached from
    poke_context_fields: ClassVar[tuple[str, ...]] = ("path", "min_age", "min_size", "unchanged_for", "conn_id")

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        min_age: float | timedelta = 0.0,
        min_size: int = 0,
        unchanged_for: float | timedelta = 0.0,
        conn_id: str | None = None,
    ) -> None:
        self.path = path = arguments.text("path", os.fspath(path) if isinstance(path, os.PathLike) else path)
        self.min_age = _seconds("min_age", min_age)
        self.unchanged_for = _seconds("unchanged_for", unchanged_for)
        self.min_size = arguments.count("min_size", min_size, "bytes")
        self.conn_id = None if conn_id is None else arguments.conn_id(conn_id)
        protocol = _protocol(path)
        self._is_local = protocol in _LOCAL
        if self._is_local:
            path = local_path(path)
            if "\0" in path:
                raise ValueError("path has a NUL character in it")
            if not path.startswith("/"):
                raise ValueError(f"path {path[:80]!r} is relative: workers work elsewhere, so give it from / on")
            if conn_id is not None:
                raise ValueError("conn_id is for URLs: a path of this machine needs no connection")
        else:
            _check_url(path, protocol)
        self._root, self._pattern = _split(path)

    @staticmethod
    def location_of(poke_context: dict[str, Any]) -> str | None:
        """Return the URL of the file, or of the folder before the first wildcard of a pattern."""
        path = poke_context["path"]
        root, pattern = _split(f"file://{local_path(path)}" if _protocol(path) in _LOCAL else path)
        return f"{root}/" if pattern else root

    def poke(self, context: Any = None) -> bool:  # noqa: ARG002  # every sensor's poke takes one
        """Return whether such a file is there.

        :raises InfraFailure: when the filesystem cannot be reached.
        :raises PermissionError: when it may not be looked at.
        :raises PokeFailed: when it refuses, or does not tell the size or the time that is asked for.
        :raises SettingsError: when this worker does not know the connection, or its filesystem refuses the options.
        """
        return self._poke_local() if self._is_local else self._poke_remote()

    def _poke_local(self) -> bool:
        try:
            if self._pattern:
                return self._holds(LocalTree(), self._root)
            # the common case, one system call
            status = os.stat(self._root)
            if stat.S_ISREG(status.st_mode) and not self.unchanged_for:
                # without min_age, a clock that is ahead must make no difference
                is_old = not self.min_age or time.time() - status.st_mtime >= self.min_age
                return is_old and status.st_size >= self.min_size
            return self._holds(LocalTree(), self._root)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if failure := as_infra_failure(error, str(error)):
                raise failure from error
            raise

    def _poke_remote(self) -> bool:
        from sensorpool.sensors.filesystems import ask  # not for local paths: fsspec takes 0.1 s to import

        if self.conn_id is None:
            return ask(self._root, {}, self._holds)
        name = variable(self.conn_id)
        return ask(self._root, connection_object(name, connection(self.conn_id)), self._holds, name=name)

    def _holds(self, tree: Tree, root: str) -> bool:
        holds = False
        for entry in self._files(tree, root):
            age = self._age(tree, entry) if self.unchanged_for or self.min_age else 0.0
            if self.unchanged_for and age < self.unchanged_for:  # a clock that is ahead hides no other file
                return False
            holds |= self._is_big_enough(entry) and age >= self.min_age
            if holds and not self.unchanged_for:
                return True
        if tree.refused and (self.unchanged_for or not holds):
            raise tree.refused[0]
        return holds

    def _files(self, tree: Tree, root: str) -> Iterator[Entry]:
        if self._pattern:
            found = matching(tree, root, self._pattern)
        else:
            entry = tree.look(root)
            found = iter([entry] if entry else [])
        for entry in found:
            if entry.is_file:
                yield entry
            elif entry.is_folder:
                yield from files_in(tree, entry.path)

    def _is_big_enough(self, entry: Entry) -> bool:
        if self.min_size and entry.size is None:
            raise PokeFailed("this server does not tell the size of a file: leave out min_size")
        return (entry.size or 0) >= self.min_size

    @staticmethod
    def _age(tree: Tree, entry: Entry) -> float:
        modified = tree.modified(entry)
        if modified is None:
            raise PokeFailed("this server does not tell when a file was modified: leave out min_age and unchanged_for")
        return time.time() - modified


def local_path(path: str) -> str:
    """Return a path of this machine, or the URL of one, as a path. Encoded glob characters are no pattern."""
    protocol, separator, rest = path.partition("://")
    if not separator or protocol not in _LOCAL:
        return path
    if protocol != "file":
        return rest
    for magic, code in (("[", "%5B"), ("*", "%2A"), ("?", "%3F")):
        rest = rest.replace(code, f"[{magic}]").replace(code.lower(), f"[{magic}]")
    return unquote(rest.removeprefix("localhost"), errors="surrogateescape")


def _check_url(url: str, protocol: str) -> None:
    from sensorpool.sensors.filesystems import known_protocols  # late, as above

    if protocol in _WEB:
        raise ValueError(f"path is a URL of a web server: wait for it with HttpSensor ({shown_url(url)})")
    if protocol not in known_protocols():
        raise ValueError(f"path has the unknown protocol {protocol}:// (fsspec knows none of that name)")
    try:
        authority = urlsplit(url).netloc
    except ValueError:
        raise ValueError(f"path is not a URL: {shown_url(url)}") from None
    if "::" in re.sub(r"\[[\da-fA-F:.]+\]", "", url):  # an IPv6 address is none
        raise ValueError("path is a chain of URLs (::): give the URL of the file itself")
    if ":" in authority.rpartition("@")[0]:
        raise ValueError(f"path has a password in it: move it to a connection ({shown_url(url)})")
    if has_magic(re.sub(r"\[[\da-fA-F:.]+\]", "", authority)):
        raise ValueError(f"path has a glob character in its host or bucket: {shown_url(url)}")
    path = url.partition("://")[2]
    if arguments.climbs(path):
        raise ValueError(f"path has a .. in it: write where it leads ({shown_url(url)})")
    root, pattern = _split(url)
    tail = path[len(root.partition("://")[2].rstrip("/")) :]
    # fsspec's listings of S3 drop a slash at the beginning of a key
    if pattern and ("//" in tail or path.partition("/")[2].startswith("/")):
        raise ValueError(f"path has // at its pattern, which no name matches: write one slash ({shown_url(url)})")


def _protocol(path: str) -> str:
    url = _URL.match(path)
    return url[1] if url else "file"


def _seconds(name: str, value: float | timedelta) -> float:
    return arguments.amount(name, value.total_seconds() if isinstance(value, timedelta) else value, "seconds")


def _split(path: str) -> tuple[str, tuple[str, ...]]:
    """Cut a path before its first part with a glob character: what is before is looked up, the rest matched."""
    parts = path.split("/")
    of_name = 3 if "://" in path else 0  # before that are protocol and host, and an IPv6 address has brackets
    first = next((place for place, part in enumerate(parts) if place >= of_name and has_magic(part)), None)
    if first is None:
        return path, ()
    return "/".join(parts[:first]) or "/", tuple(part for part in parts[first:] if part)
