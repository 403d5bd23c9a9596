"""An SFTP server as a tree, by paramiko's client."""

import os
import stat
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from sensorpool.sensors.failures import NOT_THERE, as_infra_failure
from sensorpool.sensors.time_limit import time_limit
from sensorpool.sensors.tree import Entry

_PATIENCE = 30.0  # seconds for an answer, outside a pool
_ADVANCE = 32  # requests under way for a listing


class SftpTree:
    """The folders of an SFTP server. Links are followed; one that leads nowhere is not there."""

    def __init__(self, client: Any) -> None:
        self._client = client
        # a firewall may have dropped the connection without a word: that leaves time to ask over a new one
        self._client.get_channel().settimeout((time_limit() or 2 * _PATIENCE) / 2)
        self.refused: list[Exception] = []

    def look(self, path: str) -> Entry | None:
        """Return the entry at the path, or None."""
        try:
            return _entry(path, self._client.stat(os.fsencode(path)))
        except NOT_THERE:
            return None

    def scan(self, folder: str, wanted: Callable[[str], bool]) -> Iterator[Entry]:
        """Yield the entries of the folder that have a wanted name."""
        try:
            listing = list(self._listing(folder))
        except NOT_THERE:
            return
        for name, attributes in listing:
            if not wanted(name):
                continue
            path = f"{folder.rstrip('/')}/{name}"
            if not stat.S_ISLNK(attributes.st_mode or 0):
                yield _entry(path, attributes)
                continue
            try:
                target = self.look(path)
            except PermissionError as error:  # a link into a closed folder
                self.refused.append(error)
            except OSError as error:  # a link to itself: servers say no more than "Failure"
                if as_infra_failure(error, ""):
                    raise
            else:
                if target is not None:
                    yield replace(target, is_link=True)

    def modified(self, entry: Entry) -> float | None:
        """Return when the file was last modified; None: the server does not tell."""
        return entry.modified

    def _listing(self, folder: str) -> Iterator[tuple[str, Any]]:
        """Yield names and attributes. paramiko's own listing fails where one name is not UTF-8."""
        from paramiko.sftp import CMD_CLOSE, CMD_OPENDIR, CMD_READDIR
        from paramiko.sftp_attr import SFTPAttributes

        handle = self._client._request(CMD_OPENDIR, os.fsencode(folder))[1].get_string()
        asked: deque[int] = deque()
        try:
            while True:
                # a server far away has a hundred names in each answer: two more are asked for with each that has come
                for _ in range(min(2, _ADVANCE - len(asked))):
                    asked.append(self._client._async_request(type(None), CMD_READDIR, handle))
                answer = self._client._read_response(asked.popleft())[1]
                for _ in range(answer.get_int()):
                    name, _long_name = os.fsdecode(answer.get_string()), answer.get_string()
                    attributes = SFTPAttributes._from_msg(answer, name, "")
                    if name not in (".", ".."):
                        yield name, attributes
        except EOFError:  # the end of the listing; at the end of the connection the next request fails
            self._client._request(CMD_CLOSE, handle)


def _entry(path: str, attributes: Any) -> Entry:
    mode = attributes.st_mode
    return Entry(
        path=path,
        is_file=mode is None or stat.S_ISREG(mode),  # a server may tell no mode; what it lists is a file then
        is_folder=mode is not None and stat.S_ISDIR(mode),
        is_link=False,
        size=attributes.st_size,
        modified=attributes.st_mtime,
    )
