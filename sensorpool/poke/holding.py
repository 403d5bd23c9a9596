"""What holds an event loop: found from another thread, by where the loop's thread stands."""

import asyncio
import sys
import time
from functools import partial
from typing import Any

from sensorpool.poke.disposal import dispose
from sensorpool.poke.poke_loop import PokeLoop, SteppedCoroutine
from sensorpool.poke.rounds import LONG, Holder
from sensorpool.poke.sharing import CURRENT_POKE

_RUN = asyncio.Handle._run.__code__  # the frame below all that a loop calls


def look(loop: PokeLoop) -> Holder | None:
    """Note what holds a loop, if its round is a long one, and return it."""
    began, now = loop.rounds.began, time.monotonic()
    if now - began <= LONG or (handle := _running_handle(loop)) is None:
        return None
    holders = loop.rounds.holders(began)
    if holders and holders[-1].handle is handle:
        return holders[-1]
    dispose(handle)  # this may be its last reference
    holder = _holder(loop, handle, now if holders else began)
    if _running_handle(loop) is not handle:
        return None  # the loop has gone on meanwhile
    holders.append(holder)
    if holder.going is None:
        loop.left_behind = holder.name
    return holder


def _running_handle(loop: PokeLoop) -> asyncio.Handle | None:
    frame = sys._current_frames().get(loop.thread_id)
    while frame is not None and frame.f_code is not _RUN:
        frame = frame.f_back
    return None if frame is None else frame.f_locals.get("self")


def _holder(loop: PokeLoop, handle: Any, since: float) -> Holder:
    try:
        task = asyncio.current_task(loop.loop)
    except RuntimeError:  # its tasks change just now
        task = None
    code = handle._callback if task is None else task.get_coro()
    going = getattr(task, "going", None) or handle._context.get(CURRENT_POKE)
    return Holder(handle, since, None if going is None or going.is_over else going, _name_of(code))


def _name_of(code: Any) -> str:
    if isinstance(code, SteppedCoroutine):
        return code.unit.op_classpath
    while isinstance(code, partial):
        code = code.func
    try:
        return str(code.__qualname__)
    except Exception:  # a callable object, which may be odd
        return type(code).__qualname__
