"""The default pool: a pool of the environment's settings, one for each process, made at its first use."""

import os
import threading
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from sensorpool.client.pool import Pool
from sensorpool.model.states import State
from sensorpool.model.values import Instance, Registration

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


def register(sensor: object, poke_context: Mapping[str, Any] | None = None, **options: Any) -> Instance:
    """Register one sensor with the pool of the environment: see `Pool.register`."""
    return default_pool().register(sensor, poke_context, **options)


def register_many(registrations: Iterable[Registration | Mapping[str, Any]], **options: Any) -> list[Instance]:
    """Register many sensors with the pool of the environment: see `Pool.register_many`."""
    return default_pool().register_many(registrations, **options)


def wait(
    instance_ids: Iterable[int | Instance] | Instance, timeout: float | timedelta | None = None
) -> dict[int, State]:
    """Wait for instances of the pool of the environment: see `Pool.wait`."""
    return default_pool().wait(instance_ids, timeout)


def cancel(instance_id: int | Instance, reason: str = "cancelled") -> State:
    """Cancel an instance of the pool of the environment: see `Pool.cancel`."""
    return default_pool().cancel(instance_id, reason)


def wake(op_classpath: str | None = None, poke_context: Mapping[str, Any] | None = None, **named: Any) -> int:
    """Have conditions of the pool of the environment poked at once: see `Pool.wake`."""
    return default_pool().wake(op_classpath, poke_context, **named)
