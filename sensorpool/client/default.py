"""The default pool: a pool of the environment's settings, one for each process, made at its first use."""

import inspect
import os
import threading
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sensorpool.client.pool import Pool
from sensorpool.model.words import nearest

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")

_pool: tuple[int, Pool] | None = None
_lock = threading.Lock()


def _new_lock() -> None:
    """Make a new lock in a forked child: another thread may have held the old one."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


def default_pool() -> Pool:
    """Return this process's pool by the environment; a child after a fork gets its own."""
    global _pool
    with _lock:
        if _pool is None or _pool[0] != os.getpid():
            _pool = (os.getpid(), Pool())
        return _pool[1]


def use(pool: Pool | None) -> Pool | None:
    """Make a pool the default one of this process, as tests do; None: the next call makes one by the environment.

    :returns: the default pool so far, if there was one.
    """
    global _pool
    with _lock:
        before, _pool = _pool, None if pool is None else (os.getpid(), pool)
        return before[1] if before is not None and before[0] == os.getpid() else None


def show_as(function: Any, method: Callable[..., object], module: str) -> None:
    """Have `help` show a function of a module as a method of `Pool`, without its first parameter."""
    signature = inspect.signature(method)
    function.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
    function.__module__, function.__qualname__ = module, method.__name__


def refuse_unknown(method: Callable[..., object]) -> Callable[[Iterable[str]], None]:
    """Return a function that refuses names that are no arguments of a method, with what was most likely meant.

    It raises a `TypeError`, as Python does, which suggests nothing.
    """
    known = frozenset(inspect.signature(method).parameters)

    def refuse(names: Iterable[str]) -> None:
        for name in names:
            if name not in known:
                raise TypeError(f"{method.__name__}() has no argument {name!r}{nearest(name, known)}")

    return refuse


def called(pool: Pool, method: Callable[Concatenate[Pool, Arguments], Returned]) -> Callable[Arguments, Returned]:
    """Return a method of `Pool` as this pool has it: one of a test has some of its own."""
    found: Callable[Arguments, Returned] = getattr(pool, method.__name__)
    return found


def _of_default_pool(method: Callable[Concatenate[Pool, Arguments], Returned]) -> Callable[Arguments, Returned]:
    """Return a method of `Pool` as a function for the default pool."""

    refuse = refuse_unknown(method)

    @wraps(method)
    def call(*args: Arguments.args, **options: Arguments.kwargs) -> Returned:
        refuse(options)
        return called(default_pool(), method)(*args, **options)

    show_as(call, method, "sensorpool")
    return call


register = _of_default_pool(Pool.register)
register_many = _of_default_pool(Pool.register_many)
get = _of_default_pool(Pool.get)
wait = _of_default_pool(Pool.wait)
cancel = _of_default_pool(Pool.cancel)
wake = _of_default_pool(Pool.wake)
all_of = _of_default_pool(Pool.all_of)
any_of = _of_default_pool(Pool.any_of)
