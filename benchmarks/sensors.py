"""The sensors of the benchmarks: each condition becomes true at a given time, and its poke has a given cost."""

import asyncio
import os
import struct
import time
from collections.abc import Sequence
from typing import Any

NEVER = 4e9  # seconds since 1970
RECORD = struct.Struct("<Id")  # the number of the condition, and the time
DOWN = ".down"  # the ending of the file that says that the backend is down


class NoOp:
    """A condition whose poke costs nothing.

    :param n: its number.
    :param land_at: when the condition becomes true, in seconds since 1970.
    """

    __slots__ = ("_land_at",)

    def __init__(self, n: int, land_at: float = NEVER) -> None:  # noqa: ARG002  # the number makes it another condition
        self._land_at = land_at

    def poke(self, context: Any) -> bool:  # noqa: ARG002  # the signature of sensors
        """Look at the clock."""
        return time.time() >= self._land_at


class AsyncNoOp(NoOp):
    """The condition of `NoOp`, poked by coroutine."""

    async def poke(self, context: Any) -> bool:  # type: ignore[override]  # noqa: ARG002
        """Look at the clock."""
        return time.time() >= self._land_at


class ManyNoOp:
    """The condition of `NoOp`, with many contexts in one call."""

    @classmethod
    def poke_many(cls, contexts: Sequence[dict[str, Any]]) -> list[bool]:
        """Look at the clock once."""
        now = time.time()
        return [now >= context.get("land_at", NEVER) for context in contexts]


class Slow(NoOp):
    """A condition with a slow backend; it records its pokes.

    :param seconds: how long the answer takes.
    :param record: the file to write to; without one nothing is written.
    """

    __slots__ = ("_n", "_record", "_seconds")

    def __init__(self, n: int, seconds: float, land_at: float = NEVER, record: str = "") -> None:
        super().__init__(n, land_at)
        self._n, self._seconds, self._record = n, seconds, record

    def poke(self, context: Any) -> bool:
        """Wait for the answer."""
        if self._record:
            write_down(self._record, self._n)
        time.sleep(self._seconds)
        return super().poke(context)


class Recorded(Slow):
    """The condition of `Slow`, as another class."""

    __slots__ = ()


class Metered:
    """A condition that never holds, of a backend that counts its calls.

    :param n: its number.
    :param record: the file for pokes; that for calls, and that of an outage, lie beside it.
    :param conn_id: names the backend.
    """

    __slots__ = ("_n", "_record")

    def __init__(self, n: int, record: str, conn_id: str) -> None:  # noqa: ARG002  # a name
        self._n, self._record = n, record

    def poke(self, context: Any) -> bool:  # noqa: ARG002
        """Call the backend."""
        write_down(f"{self._record}.calls", self._n)
        if os.path.exists(f"{self._record}{DOWN}"):
            raise ConnectionRefusedError(111, "Connection refused")
        write_down(self._record, self._n)
        return False


class ManyMetered:
    """The condition of `Metered`, with many contexts in one call."""

    @classmethod
    def poke_many(cls, contexts: Sequence[dict[str, Any]]) -> list[bool]:
        """Call the backend once."""
        write_down(f"{contexts[0]['record']}.calls", len(contexts))
        for context in contexts:
            write_down(context["record"], context["n"])
        return [False] * len(contexts)


class AsyncSlow(Slow):
    """The condition of `Slow`, poked by coroutine."""

    __slots__ = ()

    async def poke(self, context: Any) -> bool:  # type: ignore[override]  # noqa: ARG002
        """Wait for the answer."""
        if self._record:
            write_down(self._record, self._n)
        await asyncio.sleep(self._seconds)
        return time.time() >= self._land_at


_files: dict[str, int] = {}


def write_down(path: str, n: int) -> None:
    """Append the number of a condition and the time: in one small write, so that processes can share the file."""
    record = _files.get(path)
    if record is None:
        record = _files[path] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(record, RECORD.pack(n, time.time()))
