"""A remote filesystem as a tree, by what fsspec's listings tell."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from ftplib import FTP
from typing import Any
from urllib.parse import quote

from sensorpool.sensors.failures import NOT_THERE, real_error
from sensorpool.sensors.ftp_tree import FtpTree
from sensorpool.sensors.sftp_tree import SftpTree
from sensorpool.sensors.tree import Entry, Tree, hiding_no_other

# the field of the last change in the implementations of sshfs, s3, azure, webdav, gcs, smb
_MODIFIED_FIELDS = ("mtime", "LastModified", "last_modified", "modified", "updated", "last_write_time")


def tree_of(filesystem: Any) -> Tree:
    """Return an fsspec filesystem as a tree.

    FTP and SFTP are asked by their own clients: fsspec's listings of them leave out what a sensor has to know.
    """
    client = getattr(filesystem, "ftp", None)
    if isinstance(client, FTP):
        return FtpTree(client)
    if type(client).__module__.startswith("paramiko."):
        return SftpTree(client)
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
        modified=next((told for told in times if told is not None), None),
    )


def _seconds(told: object) -> float | None:
    """Read a time in any form of the implementations: seconds, a datetime, ISO 8601; UTC by default."""
    if isinstance(told, str):
        try:
            told = datetime.fromisoformat(told)
        except ValueError:
            return None
    if isinstance(told, datetime):
        return (told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp()
    return float(told) if isinstance(told, int | float) else None
