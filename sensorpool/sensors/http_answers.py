"""An answer of an HTTP server, read by the standard library: within a time, and refused where it is malformed.

An answer also says whether its connection may be asked again. What is left over of one answer would be read as the
next one, which belongs to another sensor. So an answer that could leave anything is the last on its connection.
"""

import io
import re
import time
from email import errors
from http.client import BadStatusLine, HTTPException, HTTPResponse, IncompleteRead, RemoteDisconnected
from typing import Any, cast

_STATUS_LINE = re.compile(r"(HTTP/[0-9]\.[0-9]) ([1-9][0-9]{2})(?: (.*))?\r?\n", re.ASCII)
_UNFIT_FOR_LINES = re.compile(rb"\0|\r(?!\n)")
_LENGTH = re.compile(r"[0-9]{1,18}", re.ASCII)
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\n]*)?\r?\n")
_MAX_LINE = 65536
_MAX_INFORMATION = 20  # answers 1xx before the answer
# the library reads a head as that of a mail, where a multipart one has other defects while its body is missing
_MALFORMED = (
    errors.FirstHeaderLineIsContinuationDefect,
    errors.InvalidHeaderDefect,
    errors.MisplacedEnvelopeHeaderDefect,
    errors.MissingHeaderBodySeparatorDefect,
)


class _Incoming(io.RawIOBase):
    """What comes in for one answer. The limit of each step ends none that comes in drops; the one of the whole does."""

    def __init__(self, raw: Any, until: float) -> None:
        self._raw = raw
        self._until = until
        self.has_ended = False
        self.is_stopped = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self.is_stopped:
            return None
        if time.monotonic() > self._until:
            raise TimeoutError("the answer did not come in time")
        count: int | None = self._raw.readinto(buffer)
        self.has_ended = count == 0
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Lines(io.BufferedReader):
    """A reader of lines. To the library a lone CR ends a line, too: a text of a header could so add another one."""

    def readline(self, size: int | None = -1) -> bytes:
        line = super().readline(size)
        if _UNFIT_FOR_LINES.search(line):
            raise HTTPException("the answer has a malformed line")
        return line


class HttpAnswer(HTTPResponse):
    """An answer. Its whole has the time that the socket has for each step."""

    fp: Any
    has_clean_end = False  # it was read to its end, and nothing came after it

    def __init__(self, sock: Any, debuglevel: int = 0, method: str | None = None, url: str | None = None) -> None:
        super().__init__(sock, debuglevel, method, url)
        self.method = method
        self._heads = 0
        self._is_certain = False  # where it ends
        self._had_last_chunk = False
        self._incoming = _Incoming(self.fp.detach(), time.monotonic() + sock.gettimeout())
        self.fp = _Lines(self._incoming)

    def begin(self) -> None:
        """Read the head of the answer.

        :raises HTTPException: when it is cut off, or is no answer to our request.
        """
        super().begin()
        for _ in range(_MAX_INFORMATION):
            if not 101 < self.status < 200:
                break
            self.headers = cast(Any, None)  # else the next head is not read
            super().begin()
        if self.status < 200:
            raise HTTPException(f"the server answered {self.status}, which was not asked for")
        if self._incoming.has_ended:  # the library takes the end of the connection for the end of the head
            raise HTTPException("the server closed the connection in mid-answer")
        if any(isinstance(defect, _MALFORMED) for defect in self.headers.defects):
            raise HTTPException("the answer has a malformed header")
        lengths = [text.strip(" \t") for text in self.headers.get_all("Content-Length", ())]
        if lengths and not (len(set(lengths)) == 1 and _LENGTH.fullmatch(lengths[0])):
            raise HTTPException("the answer has a malformed Content-Length")
        encodings = self.headers.get_all("Transfer-Encoding", ())
        if len(encodings) > self.chunked:
            raise HTTPException("the answer has a transfer encoding other than chunked")
        if self.chunked and lengths:
            del self.headers["Content-Length"]  # it does not count, and urllib3 would log a warning at each poke
        has_body = self.method == "GET" and self.status not in (204, 304)
        self._is_certain = has_body and self._heads == 1 and self.version == 11 and len(lengths) + self.chunked == 1

    # The rest are the library's own steps, each with a check that the library leaves out. Should it leave out a step,
    # no answer has a clean end.

    def _read_status(self) -> tuple[str, int, str]:
        self._heads += 1
        line = self.fp.readline(_MAX_LINE).decode("latin-1")
        if not line:
            raise RemoteDisconnected("the server closed the connection without an answer")
        found = _STATUS_LINE.fullmatch(line)
        if found is None:
            raise BadStatusLine(line)
        return found[1], int(found[2]), found[3] or ""

    def _read_next_chunk_size(self) -> int:
        size = _CHUNK_SIZE.fullmatch(self.fp.readline(_MAX_LINE))
        if size is None:
            raise IncompleteRead(b"")
        return int(size[1], 16)

    def _safe_read(self, amt: int) -> bytes:
        data: bytes = super()._safe_read(amt)  # type: ignore[misc]
        if self.chunk_left == 0 and data != b"\r\n":
            raise HTTPException("the answer has a malformed chunk")
        return data

    def _read_and_discard_trailer(self) -> None:
        # trailers are not read: there could be any number of them
        line = self.fp.readline(_MAX_LINE)
        if not line.endswith(b"\n"):
            raise IncompleteRead(b"")
        self._had_last_chunk = line in (b"\r\n", b"\n")

    def _close_conn(self) -> None:
        if self._is_certain and (self._had_last_chunk if self.chunked else self.length == 0):
            self._incoming.is_stopped = True  # else the look waits for more
            self.has_clean_end = not self.fp.peek(1)
        super()._close_conn()  # type: ignore[misc]
