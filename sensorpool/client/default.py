"""The default pool: a pool of the environment's settings, one for each process, made at its first use."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sensorpool.client.pool import Pool

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")

_pool: Pool | None = None


def default_pool() -> Pool:
    """Return this process's pool by the environment."""
    global _pool
    if _pool is None:
        _pool = Pool()
    return _pool


def use(pool: Pool | None) -> Pool | None:
    """Make a pool the default one of this process, as tests do; None: the next call makes one by the environment.

    :returns: the default pool so far, if there was one.
    """
    global _pool
    before, _pool = _pool, pool
    return before


def show_as(function: Any, method: Callable[..., object], module: str) -> None:
    """Have `help` show a function of a module as a method of `Pool`, without its first parameter."""
    signature = inspect.signature(method)
    function.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
    function.__module__, function.__qualname__ = module, method.__name__


def _of_default_pool(method: Callable[Concatenate[Pool, Arguments], Returned]) -> Callable[Arguments, Returned]:
    """Return a method of `Pool` as a function for the default pool."""

    @wraps(method)
    def call(*args: Arguments.args, **options: Arguments.kwargs) -> Returned:
        returned: Returned = getattr(default_pool(), method.__name__)(*args, **options)
        return returned

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
