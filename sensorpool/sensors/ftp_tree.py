"""An FTP server as a tree. A single file is asked for by name; only patterns and folders need a listing."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from ftplib import FTP, FTP_TLS, error_perm
from typing import Any

from sensorpool.sensors.connections import PokeFailed
from sensorpool.sensors.tree import Entry

_KNOWS_NO_SUCH_COMMAND = ("500", "502", "504")
_MONTH = r"[^\W\d_]{3,5}\.?"
# `ls -l`, with English dates, those of other languages, or ISO's
_UNIX_LINE = re.compile(
    r"(?P<kind>[-dlpscbD])[-rwxsStTlL]{9}\S*\s.*?(?P<size>\d+)\s+"
    rf"(?:(?:{_MONTH}\s+\d{{1,2}}|\d{{1,2}}\.?\s+{_MONTH})\s+[\d:]{{4,5}}|\d{{4}}-\d\d-\d\d\s+\d\d:\d\d\S*(?:\s[+-]\d{{4}})?)"
    r"\s(?P<name>.+)"
)
# MS-DOS's `dir`, as IIS lists
_DOS_LINE = re.compile(
    r"\d\d-\d\d-\d{2,4}\s+\d\d:\d\d(?:[AP]M)?\s+(?:<(?P<kind>[A-Z]+)>|(?P<size>[\d.,]+))\s+(?P<name>.+)"
)
_KINDS = {
    **{"-": "file", "d": "dir", "l": "link"},
    **{"DIR": "dir", "SYMLINK": "link", "SYMLINKD": "link", "JUNCTION": "link"},
}
_TOTAL_LINE = re.compile(r"\S+\s+\d+\s*")  # "total 12"


class FtpTree:
    """The folders of an FTP server. Links are followed; one that leads nowhere is not there."""

    def __init__(self, ftp: FTP) -> None:
        self._ftp = ftp
        self.refused: list[Exception] = []
        # bytes as they are: one name may be in another encoding than the rest
        self._encoding, ftp.encoding = ftp.encoding, "latin-1"
        if isinstance(ftp, FTP_TLS):
            _protect_data(ftp)

    def look(self, path: str) -> Entry | None:
        """Return the entry at the path, or None."""
        if self._is_folder(path):
            return _entry(path, "dir")
        try:
            self._ftp.voidcmd("TYPE I")  # some servers tell no size in the other mode
            return _entry(path, "file", self._ftp.size(self._sent(path)))
        except error_perm as error:
            if not _is_unknown(error):
                return None
        folder, _, name = path.rpartition("/")
        found = next(self._listing(folder or "/", name.__eq__), None)
        if found is not None and found.is_link:
            raise PokeFailed("this server does not tell where a link leads: give the path of the file itself")
        return found

    def scan(self, folder: str, wanted: Callable[[str], bool]) -> Iterator[Entry]:
        """Yield the entries of the folder that have a wanted name."""
        for entry in list(self._listing(folder, wanted)):  # the connection answers one command at a time
            if not entry.is_link:
                yield entry
            elif (target := self.look(entry.path)) is not None:
                yield replace(target, is_link=True)

    def modified(self, entry: Entry) -> float:
        """Return when the file was last modified.

        :raises PokeFailed: when the server does not tell.
        """
        if entry.modified is not None:
            return entry.modified
        try:
            told = _seconds(self._ftp.voidcmd(f"MDTM {self._sent(entry.path)}").partition(" ")[2].strip())
        except error_perm as error:
            if not _is_unknown(error):
                return time.time()  # it went away just now
            told = None
        if told is None:
            raise PokeFailed("this server does not tell when a file was modified: leave out min_age")
        return told

    def _is_folder(self, path: str) -> bool:
        try:
            self._ftp.cwd(self._sent(path))
        except error_perm as error:
            if str(error).startswith("530"):  # not logged in
                raise
            return False
        return True

    def _listing(self, folder: str, wanted: Callable[[str], bool]) -> Iterator[Entry]:
        """Yield the entries with a wanted name; what cannot be read is refused, and hides no other."""
        if not self._is_folder(folder):
            return
        inside = folder.rstrip("/")
        try:
            _, lines = self._lines("MLSD")
        except error_perm as error:
            if not _is_unknown(error):
                raise
        else:
            for line in lines:
                told, _, name = line.partition(" ")
                facts = {fact.lower(): value for fact, _, value in (each.partition("=") for each in told.split(";"))}
                kind, size = facts.get("type", "").lower(), facts.get("size", "")
                if kind not in ("cdir", "pdir") and wanted(name):
                    mode = facts.get("unix.mode", "")[:1]
                    yield _entry(
                        f"{inside}/{name}",
                        "link" if kind.startswith(("os.unix=slink", "os.unix=symlink")) or mode == "l" else kind,
                        int(size) if size.isdigit() else None,
                        _seconds(facts.get("modify", "")),
                    )
            return
        said, lines = self._lines("LIST")
        if "failed to open" in said:  # vsftpd, of a folder that may not be read
            self.refused.append(PermissionError(f"{folder}: {said}"))
        for line in lines:
            if found := _UNIX_LINE.fullmatch(line) or _DOS_LINE.fullmatch(line):
                entry = _read(inside, found)
                if entry.path.rpartition("/")[2] not in (".", "..") and wanted(entry.path[len(inside) + 1 :]):
                    yield entry
            elif line.strip() and not _TOTAL_LINE.fullmatch(line):
                self.refused.append(PokeFailed(f"a listing of this server cannot be read: {line[:80]!r}"))

    def _lines(self, command: str) -> tuple[str, list[str]]:
        """Return the server's answer to a command that lists, and the lines of the listing."""
        lines: list[str] = []
        said = self._ftp.retrlines(command, lines.append)
        return said, [line.encode("latin-1").decode(self._encoding, "surrogateescape") for line in lines]

    def _sent(self, path: str) -> str:
        return path.encode(self._encoding, "surrogateescape").decode("latin-1")


def _read(inside: str, line: re.Match[str]) -> Entry:
    """Return the entry that a line of a listing tells, without its time: that is the server's local one."""
    kind, size, name = line["kind"] or "-", line["size"], line["name"]
    if (kind := _KINDS.get(kind, kind)) == "link":
        name = name.partition(" [" if line.re is _DOS_LINE else " -> ")[0]
    return _entry(f"{inside}/{name}", kind, int(re.sub(r"\D", "", size)) if size else None)


def _protect_data(ftp: Any) -> None:
    """Encrypt listings, too. Servers ask that their connections go on with the TLS session of the first one."""
    wrap = ftp.context.wrap_socket

    def wrap_in_session(connection: Any, **named: Any) -> Any:
        return wrap(connection, session=ftp.sock.session, **named)

    ftp.prot_p()
    ftp.context.wrap_socket = wrap_in_session


def _entry(path: str, kind: str, size: int | None = None, modified: float | None = None) -> Entry:
    return Entry(
        path=path,
        is_file=kind == "file",
        is_folder=kind == "dir",
        is_link=kind == "link",
        size=size,
        modified=modified,
    )


def _is_unknown(error: error_perm) -> bool:
    return str(error).startswith(_KNOWS_NO_SUCH_COMMAND)


def _seconds(digits: str) -> float | None:
    """Read FTP's digits of a time, in UTC (RFC 3659)."""
    try:
        return datetime.strptime(digits[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
