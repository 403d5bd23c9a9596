"""The functions of `sensorpool` for code that runs on an event loop: the same arguments, awaited.

Statements run in threads of the loop's executor. A wait sleeps on the loop, and holds no thread meanwhile.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sensorpool.client.default import default_pool, show_as
from sensorpool.client.pool import Pool
from sensorpool.client.wait import Named
from sensorpool.model.states import State

__all__ = ["all_of", "any_of", "cancel", "get", "register", "register_many", "result", "wait", "wake"]

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


def _awaited(
    method: Callable[Concatenate[Pool, Arguments], Returned],
) -> Callable[Arguments, Coroutine[Any, Any, Returned]]:
    """Return a method of `Pool` as a coroutine function for the default pool."""

    @wraps(method)
    async def call(*args: Arguments.args, **options: Arguments.kwargs) -> Returned:
        return await asyncio.to_thread(lambda: getattr(default_pool(), method.__name__)(*args, **options))

    show_as(call, method, __name__)
    return call


register = _awaited(Pool.register)
register_many = _awaited(Pool.register_many)
get = _awaited(Pool.get)
result = _awaited(Pool.result)
cancel = _awaited(Pool.cancel)
wake = _awaited(Pool.wake)
all_of = _awaited(Pool.all_of)
any_of = _awaited(Pool.any_of)


async def wait(
    instance_ids: Named | Iterable[Named], timeout: float | timedelta | None = None, *, pool: Pool | None = None
) -> dict[int, State]:
    """Wait until all are settled or ``timeout`` seconds have passed; return the state of each by its id.

    :param instance_ids: an id, an instance as `register` returned it, or some of them.
    :param pool: default: the pool of the environment.
    :raises Refused: when an argument is neither, or the timeout is no number.
    :raises Unknown: when there is no such instance, or another has the id of an `Instance` since a restore.
    :raises Unreachable: when the database does not answer at first, or later for the timeout or five minutes.
    """
    asked = await asyncio.to_thread(default_pool) if pool is None else pool
    waiting = await asyncio.to_thread(asked.waiting, instance_ids, timeout)
    while (pause := await asyncio.to_thread(waiting.look)) is not None:
        await asyncio.sleep(pause)
    return waiting.states
