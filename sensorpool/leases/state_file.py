"""The state of the one-process service, as a file that commands in other processes read.

`sensorpool standalone` has its leases, heartbeats and records of the last pokes in its own memory, instead of Redis. It
writes them to this file every few seconds, and `status`, `show`, `health` and `doctor` read the file into their own
memory. Nothing else reads the file, and its loss does no harm.
"""

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from sensorpool.config.defaults import MEMORY, state_folder
from sensorpool.config.settings import Settings
from sensorpool.leases.connection import connect

_EVERY = 1.0  # seconds
_SHARE = 50  # writing takes at most one part in so many of the time
_GARBLED = (ValueError, TypeError, KeyError, AttributeError, RecursionError, RedisError)


class StateFile:
    """The file of one service."""

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
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}.part")
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(_dump(self._client), file)
        part.replace(self._path)
        took = time.monotonic() - began
        self._due = began + max(_EVERY, _SHARE * took)

    def remove(self) -> None:
        """Remove the file: the service ends."""
        with contextlib.suppress(OSError):
            self._path.unlink()


def take_up(settings: Settings) -> None:
    """Read the file into this process's memory, if the settings name the one-process service.

    What was read before gives way in one step, so that a process that goes on looking, as the pages do, sees no mix.
    """
    if not settings.embedded:
        return
    try:
        keys = json.loads(path_of(settings).read_text(encoding="utf-8"))
        client = connect(MEMORY)
        pipeline = client.pipeline(transaction=True)
        pipeline.delete(*keys, *client.scan_iter("*"))  # what has left the file, too
        for name, (kind, value, expires) in keys.items():
            _restore(pipeline, name, kind, value, expires)
        pipeline.execute()
    except (OSError, *_GARBLED):
        return  # there is no file: the service is not running


def last_written(settings: Settings) -> str:
    """Return when the file was written last, or why that is not known: what other processes see goes by it."""
    path = path_of(settings)
    try:
        age = max(0.0, time.time() - path.stat().st_mtime)
    except FileNotFoundError:
        return f"`sensorpool standalone` is not running, has other settings, or cannot write {path}"
    except OSError as error:
        return f"the state of `sensorpool standalone` cannot be read, {path}: {error.strerror}"
    return f"`sensorpool standalone` was killed, hangs, or cannot write {path}: it last did so {age:.0f} s ago"


def path_of(settings: Settings) -> Path:
    """Return the path of the file: beside the SQLite file, or in the user's state folder."""
    with contextlib.suppress(ArgumentError):
        url = make_url(settings.database_url)
        if url.get_backend_name() == "sqlite" and url.database and url.database != ":memory:":
            return Path(f"{url.database}.standalone")
    where = hashlib.sha256(f"{settings.database_url} {settings.database_schema}".encode()).hexdigest()
    return state_folder() / f"{where[:16]}.standalone"


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
