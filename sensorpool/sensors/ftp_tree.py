"""An FTP server as a tree. A single file is asked for by name. Only patterns and folders need a listing.

Listings come by MLSD. A server without it (vsftpd, IIS) lists names by NLST, and is asked about each wanted one.
"""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from ftplib import FTP, FTP_TLS, error_perm, error_temp
from typing import Any

from sensorpool.sensors.tree import Entry, hiding_no_other

_DENIED = re.compile("denied|not permitted|not allowed", re.IGNORECASE)  # the code is that of a missing file
_KNOWS_NO_SUCH_COMMAND = ("500", "502", "504")
_HOLDS_NOTHING = ("450", "550")  # some servers say so of an empty folder


class FtpTree:
    """The folders of an FTP server. Links are followed; one that leads nowhere is not there."""

    def __init__(self, ftp: FTP) -> None:
        self._ftp = ftp
        self.refused: list[Exception] = []
        # bytes as they are: one name may be in another encoding than the rest
        self._encoding, ftp.encoding = ftp.encoding, "latin-1"
        if isinstance(ftp, FTP_TLS):
            _protect_data(ftp)
        ftp.voidcmd("TYPE I")  # some servers tell no size in the other mode

    def look(self, path: str) -> Entry | None:
        """Return the entry at the path, or None."""
        try:
            return Entry(path, is_file=True, is_folder=False, size=self._ftp.size(self._sent(path)))
        except error_perm as error:
            refusal = error
        if self._is_folder(path):
            return Entry(path, is_file=False, is_folder=True)
        if _DENIED.search(str(refusal)):
            raise PermissionError(str(refusal))
        folder, _, name = path.rpartition("/")
        is_there = _is_unknown(refusal) and self._is_folder(folder or "/") and name in self._names(folder)
        return Entry(path, is_file=True, is_folder=False) if is_there else None

    def scan(self, folder: str, wanted: Callable[[str], bool]) -> Iterator[Entry]:
        """Yield the entries of the folder that have a wanted name."""
        if not self._is_folder(folder):
            return
        inside = folder.rstrip("/")
        try:
            _, lines = self._lines("MLSD")
        except error_perm as error:
            if not _is_unknown(error):
                raise
            for name in filter(wanted, self._names(folder)):
                with hiding_no_other(self):
                    if (entry := self.look(f"{inside}/{name}")) is not None:
                        yield entry
            return
        for line in lines:
            written, _, name = line.partition(" ")
            facts = {fact.lower(): value for fact, _, value in (each.partition("=") for each in written.split(";"))}
            kind, size = facts.get("type", "").lower(), facts.get("size", "")
            if kind in ("cdir", "pdir") or not wanted(name):
                continue
            path = f"{inside}/{name}"
            if kind.startswith(("os.unix=slink", "os.unix=symlink")) or facts.get("unix.mode", "")[:1] == "l":
                if (target := self.look(path)) is not None:
                    yield replace(target, is_link=True)
            else:
                modified = _seconds(facts.get("modify", ""))
                yield Entry(path, kind == "file", kind == "dir", False, int(size) if size.isdigit() else None, modified)

    def modified(self, entry: Entry) -> float | None:
        """Return when the file was last modified, now if it is gone; None: the server does not tell."""
        if entry.modified is not None:
            return entry.modified
        try:
            return _seconds(self._ftp.voidcmd(f"MDTM {self._sent(entry.path)}").partition(" ")[2].strip())
        except error_perm as error:
            return None if _is_unknown(error) else time.time()

    def _is_folder(self, path: str) -> bool:
        try:
            self._ftp.cwd(self._sent(path))
        except error_perm as error:
            if str(error).startswith("530"):  # not logged in
                raise
            if _DENIED.search(str(error)):
                raise PermissionError(str(error)) from None
            return False
        return True

    def _names(self, folder: str) -> list[str]:
        """Return the names in a folder, which is the current one."""
        try:
            said, lines = self._lines("NLST")
        except (error_perm, error_temp) as error:
            if str(error).startswith(_HOLDS_NOTHING):
                return []
            raise
        if "failed to open" in said:  # vsftpd, of a folder that may not be read
            self.refused.append(PermissionError(f"{folder}: {said}"))
        names = [line.rpartition("/")[2] for line in lines]
        return [name for name in names if name not in ("", ".", "..")]

    def _lines(self, command: str) -> tuple[str, list[str]]:
        """Return the server's answer to a command that lists, and the lines of the listing."""
        lines: list[str] = []
        try:
            said = self._ftp.retrlines(command, lines.append)
        finally:
            self._ftp.voidcmd("TYPE I")
        return said, [line.encode("latin-1").decode(self._encoding, "surrogateescape") for line in lines]

    def _sent(self, path: str) -> str:
        return path.encode(self._encoding, "surrogateescape").decode("latin-1")


def _protect_data(ftp: Any) -> None:
    """Encrypt listings, too. Servers ask that their connections go on with the TLS session of the first one."""
    wrap = ftp.context.wrap_socket

    def wrap_in_session(connection: Any, **named: Any) -> Any:
        return wrap(connection, session=ftp.sock.session, **named)

    ftp.prot_p()
    ftp.context.wrap_socket = wrap_in_session


def _is_unknown(error: error_perm) -> bool:
    return str(error).startswith(_KNOWS_NO_SUCH_COMMAND)


def _seconds(digits: str) -> float | None:
    """Read FTP's digits of a time, in UTC (RFC 3659)."""
    try:
        return datetime.strptime(digits[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
