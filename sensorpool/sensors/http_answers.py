"""An answer of an HTTP server, read by the standard library: within a time, and refused where it is malformed."""

import io
import re
import time
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import Any, cast

_LENGTH = re.compile(r"[0-9]{1,18}", re.ASCII)
_MOST_INFORMATION = 20  # answers 1xx before the answer


class _Incoming(io.RawIOBase):
    """What comes in for one answer. The limit of each step ends none that comes in drops; the one of the whole does."""

    def __init__(self, raw: Any, until: float) -> None:
        self._raw = raw
        self._until = until
        self.has_ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if time.monotonic() > self._until:
            raise TimeoutError("the answer did not come in time")
        count: int | None = self._raw.readinto(buffer)
        self.has_ended = count == 0
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class HttpAnswer(HTTPResponse):
    """An answer. Its whole has the time that the socket has for each step."""

    fp: Any

    def __init__(self, sock: Any, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self._incoming = _Incoming(self.fp.detach(), time.monotonic() + sock.gettimeout())
        self.fp = io.BufferedReader(self._incoming)

    def begin(self) -> None:
        """Read the head of the answer.

        :raises HTTPException: when it is cut off, or is no answer to our request.
        """
        super().begin()
        for _ in range(_MOST_INFORMATION):
            if not 101 < self.status < 200:
                break
            self.headers = cast(Any, None)  # else the next head is not read
            super().begin()
        if self.status < 200:
            raise HTTPException(f"the server answered {self.status}, which was not asked for")
        if self._incoming.has_ended:  # the library takes the end of the connection for the end of the head
            raise HTTPException("the server closed the connection in mid-answer")
        if self.headers.defects:
            raise HTTPException("the answer has a malformed header")
        lengths = self.headers.get_all("Content-Length")
        if lengths and not (len(set(lengths)) == 1 and _LENGTH.fullmatch(lengths[0])):
            raise HTTPException("the answer has a malformed Content-Length")
        if not self.chunked:
            if "Transfer-Encoding" in self.headers:
                raise HTTPException("the answer has a transfer encoding other than chunked")
        elif lengths:
            del self.headers["Content-Length"]  # one of the two is wrong
            self.will_close = True

    def read1(self, n: int = -1) -> bytes:
        """Return what has come of the body, at most ``n`` bytes; nothing at its end.

        :raises IncompleteRead: when it is cut off.
        """
        piece = super().read1(n)
        if not piece and self.chunked and self._incoming.has_ended:  # the library takes any end for the end of a chunk
            raise IncompleteRead(piece)
        return piece
