"""SFTP: fsspec's filesystem, which connects as ``ssh`` does and ends its connections, and its server as a tree."""

import os
import stat
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from fsspec.implementations.sftp import SFTPFileSystem
from paramiko import AuthenticationException, SSHClient, SSHException
from paramiko.sftp import CMD_CLOSE, CMD_OPENDIR, CMD_READDIR
from paramiko.sftp_attr import SFTPAttributes

from sensorpool.sensors.failures import NOT_THERE, as_infra_failure
from sensorpool.sensors.shared import time_limit
from sensorpool.sensors.tree import Entry

_PATIENCE = 30.0  # seconds for an answer, outside a pool
_ADVANCE = 32  # requests under way for a listing


class SftpFileSystem(SFTPFileSystem):  # type: ignore[misc]
    """An SFTP filesystem.

    :raises AuthenticationException: when the server is there, and the key, password or known host is wrong.
    """

    def _connect(self) -> None:
        self.client = SSHClient()
        self.client.load_system_host_keys()
        self.client.set_missing_host_key_policy(self.host_key_policy)
        try:
            self._log_in()
            self.ftp = self.client.open_sftp()
            # a firewall may drop the connection without a word: that leaves time to ask over a new one
            self.ftp.get_channel().settimeout((time_limit() or 2 * _PATIENCE) / 2)
        except BaseException:
            self.close()
            raise

    def _log_in(self) -> None:
        try:
            self.client.connect(self.host, **self.ssh_kwargs)
        except SSHException as error:
            transport = self.client.get_transport()
            if type(error) is SSHException and transport is not None and transport.is_active():
                # the server has not hung up: a passphrase is wrong, or its host key unknown
                raise AuthenticationException(str(error)) from error
            raise

    def close(self) -> None:
        """End the connection: its thread and socket would stay."""
        self.client.close()

    def as_tree(self) -> "SftpTree":
        """Return the server as a tree."""
        return SftpTree(self.ftp)


class SftpTree:
    """The folders of an SFTP server. Links are followed; one that leads nowhere is not there."""

    def __init__(self, client: Any) -> None:
        self._client = client
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
        except EOFError:  # of the listing. At the end of the connection the next request fails
            self._client._request(CMD_CLOSE, handle)


def _entry(path: str, attributes: Any) -> Entry:
    mode = attributes.st_mode or stat.S_IFREG  # some servers tell no mode
    return Entry(path, stat.S_ISREG(mode), stat.S_ISDIR(mode), False, attributes.st_size, attributes.st_mtime)
