"""Sensors that answer: at once, after a while, by coroutine, or with odd types of answers."""

import asyncio
import functools
import time
from collections.abc import Callable
from typing import Any, ClassVar


class Lands:
    """Lands."""

    def __init__(self, **_: Any) -> None: ...

    def poke(self, context: Any) -> Any:
        return True


class Raises(Lands):
    """Raises."""

    def poke(self, context: Any) -> Any:
        raise ValueError("as told")


class FindsNothing(Lands):
    """Does not land."""

    def poke(self, context: Any) -> Any:
        return False


class Sleeps(Lands):
    """Lands after a while."""

    def poke(self, context: Any) -> Any:
        time.sleep(0.8)
        return True


class AsyncLands:
    """Lands, by coroutine."""

    def __init__(self, **_: Any) -> None: ...

    async def poke(self, context: Any) -> Any:
        return True


class AsyncCounts:
    """Lands, and counts its pokes."""

    pokes: ClassVar[list[str]] = []

    def __init__(self, name: str) -> None:
        self.name = name

    async def poke(self, context: Any) -> Any:
        self.pokes.append(self.name)
        return True


class Says:
    """Returns the value that its context names."""

    def __init__(self, say: Any = None) -> None:
        self.say = say


def _timed(poke: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(poke)
    def timed(*arguments: Any, **named: Any) -> Any:
        return poke(*arguments, **named)

    return timed


async def _say(value: Any) -> Any:
    await asyncio.sleep(0)
    if value == "error":
        raise ValueError("as told")
    return value


class Decorated(Says):
    """Has a coroutine for its poke, which a decorator hides."""

    @_timed
    async def poke(self, context: Any) -> Any:
        return await _say(self.say)


class _Later:
    def __init__(self, value: Any) -> None:
        self._value = value

    def __await__(self) -> Any:
        return _say(self._value).__await__()


class Awaitable(Says):
    """Returns an awaitable that is no coroutine."""

    def poke(self, context: Any) -> Any:
        return _Later(self.say)


class DecoratedHome(Says):
    """Notes the event loops of its pokes, and belongs to the first one."""

    loops: ClassVar[list[Any]] = []

    @_timed
    async def poke(self, context: Any) -> Any:
        loop = asyncio.get_running_loop()
        self.loops.append(loop)
        assert self.__dict__.setdefault("home", loop) is loop
        return False


class Yields(Says):
    """Returns a generator, which is a true value whatever it would yield."""

    def poke(self, context: Any) -> Any:
        yield False


class AsyncYields(Says):
    """Returns an asynchronous generator."""

    async def poke(self, context: Any) -> Any:
        yield False


class Forgets(Says):
    """Returns a coroutine that it should have awaited."""

    async def poke(self, context: Any) -> Any:
        return _say(False)
