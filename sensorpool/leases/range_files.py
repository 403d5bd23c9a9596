"""What the one-process service has in flight, in files: if it dies, its next start knows which pokes may be to blame.

With a Redis the key ``note`` of a range names these groups. A service whose leases are in its own memory loses the key
with its process, so it writes a file for each range too, beside its state file (`state_file`). The loss of these files
does no harm.
"""

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sensorpool.config.settings import Settings
from sensorpool.leases.range_state import read_in_flight
from sensorpool.leases.state_file import path_of
from sensorpool.model.values import ShardRange


class RangeFiles:
    """The files of one service: none for a range without such groups. A full disk is no error: the pool goes on."""

    def __init__(self, settings: Settings) -> None:
        self._base = path_of(settings)

    def put_in_flight(self, shard_range: ShardRange, group_ids: Sequence[int]) -> None:
        """Record which groups are about to be poked; none of them: nothing is in flight."""
        _put(self._path(shard_range, "in_flight"), list(group_ids))

    def put_background(self, shard_range: ShardRange, group_ids: Sequence[int]) -> None:
        """Record which groups this process pokes outside of jobs; none of them: none is."""
        _put(self._path(shard_range, "background"), list(group_ids))

    def take(self, shard_range: ShardRange) -> list[int]:
        """Return the groups that the last process poked when it died, and forget those outside of jobs."""
        names = ("in_flight", "background")
        found = [each for name in names for each in read_in_flight(_text(self._path(shard_range, name)))]
        self.put_background(shard_range, [])
        return found

    def _path(self, shard_range: ShardRange, what: str) -> Path:
        return self._base.with_name(f"{self._base.name}.{shard_range}.{what}")


def _put(path: Path, value: Any) -> None:
    with contextlib.suppress(OSError):
        if not value:
            path.unlink()
            return
        part = path.with_name(f"{path.name}.part")
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
            json.dump(value, file)
        part.replace(path)  # a process that dies while it writes leaves the record before whole


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""
