"""What the one-process service has in its memory instead of Redis, as a file that commands of other processes read.

Leases, heartbeats and records of the last pokes of `sensorpool standalone` are in its own memory. It writes them down
every few seconds, and `status`, `show`, `health` and `doctor` read them into the memory of their own. Nothing else
reads the file, and nothing is lost with it.
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
_SHARE = 50  # writing takes at most this part of the time
_GARBLED = (ValueError, TypeError, KeyError, AttributeError, RecursionError, RedisError)


class StateFile:
    """The file of one service."""

    def __init__(self, settings: Settings) -> None:
        self._path = path_of(settings)
        self._client = connect(MEMORY)
        self._due = 0.0

    def write(self) -> None:
        """Write it if it is time: what takes long is written less often.

        :raises OSError: when it cannot be written.
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
        """Remove it: the service ends."""
        with contextlib.suppress(OSError):
            self._path.unlink()


def take_up(settings: Settings) -> None:
    """Read what the one-process service of these settings wrote, if one is meant. Call it before any `Pool` is made."""
    if not settings.embedded:
        return
    client = connect(MEMORY)
    try:
        found = json.loads(path_of(settings).read_text(encoding="utf-8"))
        for name, (kind, value, expires) in found.items():
            _restore(client, name, kind, value, expires)
    except (OSError, *_GARBLED):
        return  # there is none: it is not running


def path_of(settings: Settings) -> Path:
    """Return where the file is: beside the SQLite file, or in the user's state folder."""
    with contextlib.suppress(ArgumentError):
        url = make_url(settings.database_url)
        if url.get_backend_name() == "sqlite" and url.database and url.database != ":memory:":
            return Path(f"{url.database}.standalone")
    where = hashlib.sha256(f"{settings.database_url} {settings.database_schema}".encode()).hexdigest()
    return state_folder() / f"{where[:16]}.standalone"


def _dump(client: Any) -> dict[str, Any]:
    """Return each key with its type, its value, and when it expires (seconds since 1970; None: never)."""
    found: dict[str, Any] = {}
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
            found[name] = (kind, value, time.time() + left / 1000 if left > 0 else None)
    return found


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
