"""A TCP proxy between the service and a server, which can break connections as networks do."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Self

from sqlalchemy import make_url

from harness.servers.server import LOOPBACK, free_port

_CHUNK = 65_536
COMMIT = b"COMMIT\0"
"""The bytes of a COMMIT to PostgreSQL. (Without its end the word stands in every BEGIN ... READ COMMITTED as well.)"""


class Proxy:
    """Forwards connections from a port of its own to a server's, for as long as the context lasts.

    :param target: the server's port on loopback; it may be changed (a failover).
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = free_port()
        # counts of the strikes of a fault: answers cut off, connections broken, pieces and connections held back
        self.cut = 0
        self.broken = 0
        self.broken_off = 0  # by the server, or because there is no server
        self.kept_back = 0
        self._cut_after: bytes | None = None
        self._cuts_left = 0
        self._flows: asyncio.Event
        self._delay = 0.0
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="proxy")

    @classmethod
    def before(cls, url: str) -> Self:
        """Make a proxy that stands before the server of a URL."""
        port = make_url(url).port
        assert port is not None
        return cls(port)

    def url(self, url: str) -> str:
        """Return the URL of the server with our port in it."""
        head, _, tail = url.rpartition("@")
        return f"{head}@{LOOPBACK}:{self.port}/{tail.partition('/')[2]}"

    def refuse(self) -> None:
        """Close all connections, and take no more."""
        self._run(self._refuse())

    def swallow(self) -> None:
        """Forward nothing more, and close nothing, as on a half-open connection."""
        self._call(lambda: self._flows.clear())

    def delay(self, seconds: float) -> None:
        """Forward each piece with this delay (seconds)."""
        self._delay = seconds

    def cut_answer(self, after: bytes, times: int = 1) -> None:
        """Let requests with these bytes through, and close the connection before their answer."""
        self._cut_after, self._cuts_left = after, times

    def reset(self) -> None:
        """Close all connections; new ones are taken."""
        self._run(self._reset())

    def heal(self) -> None:
        """Forward everything again."""
        self._delay, self._cut_after = 0.0, None
        self._run(self._heal())

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._begin())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        await self._refuse()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _begin(self) -> None:
        self._flows = asyncio.Event()
        await self._heal()

    async def _heal(self) -> None:
        self._flows.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, LOOPBACK, self.port)

    async def _refuse(self) -> None:
        if self._server is not None:
            for listener in self._server.sockets:
                self._loop.remove_reader(listener.fileno())
            # what was accepted becomes a connection first: Python 3.11 leaves it open if the server closes before that
            await asyncio.sleep(0)
            self._server.close()
            self._server = None
        await self._reset()

    async def _reset(self) -> None:
        for writer in list(self._writers):
            self.broken += 1
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.kept_back += not self._flows.is_set()
        await self._flows.wait()
        try:
            from_server, to_server = await asyncio.open_connection(LOOPBACK, self.target)
        except OSError:
            self.broken_off += 1
            writer.transport.abort()
            return
        self._writers.add(to_server)
        doomed = asyncio.Event()
        pumps = [
            asyncio.ensure_future(self._pump(reader, to_server, doomed, is_request=True)),
            asyncio.ensure_future(self._pump(from_server, writer, doomed, is_request=False)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        self.broken_off += pumps[1].done() and not doomed.is_set()
        for pump in pumps:
            pump.cancel()
        for each in (writer, to_server):
            self._writers.discard(each)
            if doomed.is_set():
                each.transport.abort()
            else:
                each.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, doomed: asyncio.Event, *, is_request: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(_CHUNK):
                self.kept_back += not self._flows.is_set()
                await self._flows.wait()
                if self._delay:
                    await asyncio.sleep(self._delay)
                if doomed.is_set():
                    return  # the answer has come, and is dropped
                if is_request and self._cut_after is not None and self._cuts_left and self._cut_after in piece:
                    self._cuts_left -= 1
                    self.cut += 1
                    doomed.set()
                writer.write(piece)
                await writer.drain()

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        future: Future[None] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        future.result(10)

    def _call(self, function: Callable[[], None]) -> None:
        async def run() -> None:
            function()

        self._run(run())
