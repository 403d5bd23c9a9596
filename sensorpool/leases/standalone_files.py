"""The files of the one-process service, whose leases are in its own memory. They lie beside its SQLite file.

`sensorpool standalone` writes what is in its memory to the state file every second, and `status`, `show`, `health` and
`doctor` read the file into theirs. What it has in flight has a file for each range as well, written before the pokes
begin: if the service dies, its next start knows which pokes may be to blame. The loss of these files does no harm.
"""

import contextlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from sensorpool.config.defaults import MEMORY
from sensorpool.config.settings import Settings
from sensorpool.leases.range_state import read_ids
from sensorpool.leases.redis_store import connect
from sensorpool.model.values import ShardRange

_EVERY = 1.0  # seconds
_SHARE = 50  # writing takes at most one part in so many of the time
_GARBLED = (ValueError, TypeError, AttributeError, RedisError)


class StateFile:
    """The state file of one service."""

    def __init__(self, settings: Settings) -> None:
        self._path = path_of(settings)
        self._client = connect(MEMORY)
        self._due = 0.0

    def write(self) -> None:
        """Write the file if it is time; a file that takes long to write is written less often.

        :raises OSError: when the file cannot be written.
        """
        began = time.monotonic()
        if began < self._due:
            return
        _write(self._path, _dump(self._client))
        self._due = began + max(_EVERY, _SHARE * (time.monotonic() - began))

    def remove(self) -> None:
        """Remove the file: the service ends."""
        with contextlib.suppress(OSError):
            self._path.unlink()


class InFlightFiles:
    """The files of what is in flight: none for a range without such groups. A full disk is no error."""

    def __init__(self, settings: Settings) -> None:
        self._base = path_of(settings)

    def put_in_flight(self, shard_range: ShardRange, group_ids: Sequence[int]) -> None:
        """Record which groups are about to be poked; none of them: nothing is in flight."""
        self._put(shard_range, "in_flight", group_ids)

    def put_background(self, shard_range: ShardRange, group_ids: Sequence[int]) -> None:
        """Record which groups this process pokes outside of jobs; none of them: none is."""
        self._put(shard_range, "background", group_ids)

    def take(self, shard_range: ShardRange) -> list[int]:
        """Return the groups that the last process poked when it died, and forget those outside of jobs."""
        found: list[int] = []
        for what in ("in_flight", "background"):
            with contextlib.suppress(OSError, ValueError):
                found += read_ids(self._path(shard_range, what).read_text(encoding="ascii"))
        self.put_background(shard_range, [])
        return found

    def _put(self, shard_range: ShardRange, what: str, group_ids: Sequence[int]) -> None:
        path = self._path(shard_range, what)
        with contextlib.suppress(OSError):
            if group_ids:
                _write(path, list(group_ids))
            else:
                path.unlink()

    def _path(self, shard_range: ShardRange, what: str) -> Path:
        return self._base.with_name(f"{self._base.name}.{shard_range}.{what}")


def take_up(settings: Settings) -> None:
    """Read the state file into this process's memory, if the settings name the one-process service.

    What was read before gives way in one step, so that a process that goes on looking, as the pages do, sees no mix.
    """
    if not settings.embedded:
        return
    with contextlib.suppress(OSError, *_GARBLED):  # there is no file: the service is not running
        keys = json.loads(path_of(settings).read_text(encoding="utf-8"))
        client = connect(MEMORY)
        pipeline = client.pipeline(transaction=True)
        pipeline.delete(*keys, *client.scan_iter("*"))  # what has left the file, too
        for name, (kind, value, expires) in keys.items():
            _restore(pipeline, name, kind, value, expires)
        pipeline.execute()


def last_written(settings: Settings) -> str:
    """Return when the state file was written last, or why that is not known: what other processes see goes by it."""
    path = path_of(settings)
    try:
        age = max(0.0, time.time() - path.stat().st_mtime)
    except FileNotFoundError:
        return f"`sensorpool standalone` is not running, has other settings, or cannot write {path}"
    except OSError as error:
        return f"the state of `sensorpool standalone` cannot be read, {path}: {error.strerror}"
    return f"`sensorpool standalone` was killed, hangs, or cannot write {path}: it last did so {age:.0f} s ago"


def path_of(settings: Settings) -> Path:
    """Return the path of the state file."""
    with contextlib.suppress(ArgumentError):
        if database := make_url(settings.database_url).database:
            return Path(f"{database}.standalone")
    return Path("sensorpool.standalone")  # of a database in memory


def _write(path: Path, value: Any) -> None:
    """Write a file; a process that dies meanwhile leaves the one before whole."""
    part = path.with_name(f"{path.name}.part")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(value, file)
    part.replace(path)


def _dump(client: Any) -> dict[str, Any]:
    """Return each key with its type, its value, and when it expires (seconds since 1970; None: never)."""
    keys: dict[str, Any] = {}
    for name in client.scan_iter("*"):
        kind, left = client.type(name), client.pttl(name)
        match kind:
            case "string":
                value: Any = client.get(name)
            case "hash":
                value = client.hgetall(name)
            case "zset":
                value = dict(client.zrange(name, 0, -1, withscores=True))
            case _:
                continue
        if value:
            keys[name] = (kind, value, time.time() + left / 1000 if left > 0 else None)
    return keys


def _restore(client: Any, name: str, kind: str, value: Any, expires: float | None) -> None:
    left = None if expires is None else round((expires - time.time()) * 1000)
    if left is not None and left <= 0:
        return
    match kind:
        case "string":
            client.set(name, value)
        case "hash":
            client.hset(name, mapping=value)
        case "zset":
            client.zadd(name, value)
    if left is not None:
        client.pexpire(name, left)
