"""What the one-process service has in flight, in files: if the process dies, its next start pokes these groups apart.

With a Redis the key ``note`` of a range says which groups are in flight. A service whose leases are in its own memory
loses that key with its process, so it writes a file for each range too, beside its state file (`state_file`). The loss
of these files does no harm.
"""

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from sensorpool.config.settings import Settings
from sensorpool.leases.range_state import read_in_flight
from sensorpool.leases.state_file import path_of
from sensorpool.model.values import ShardRange


class InFlightFiles:
    """The files of one service: none for a range that no job works on. A full disk is no error: the pool goes on."""

    def __init__(self, settings: Settings) -> None:
        self._base = path_of(settings)

    def put(self, shard_range: ShardRange, group_ids: Sequence[int]) -> None:
        """Record which groups are about to be poked."""
        path = self._path(shard_range)
        part = path.with_name(f"{path.name}.part")
        with contextlib.suppress(OSError):
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
                json.dump(list(group_ids), file)
            part.replace(path)  # a process that dies while it writes leaves the record before whole

    def remove(self, shard_range: ShardRange) -> None:
        """Record that nothing is in flight."""
        with contextlib.suppress(OSError):
            self._path(shard_range).unlink()

    def read(self, shard_range: ShardRange) -> list[int]:
        """Return the groups that were in flight when the last process died."""
        try:
            return read_in_flight(self._path(shard_range).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return []

    def _path(self, shard_range: ShardRange) -> Path:
        return self._base.with_name(f"{self._base.name}.{shard_range}")
