"""Load: what is due in a range, and the sensors of the groups that are.

The query is the scheduler (`sensorpool.model.due` is its rule). The time of the load before is in the state that the
last holder left. If Redis has lost it, the whole range is due once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection

from sensorpool.config.settings import Settings
from sensorpool.leases.lease import Acquired
from sensorpool.model.due import is_due
from sensorpool.model.trouble import Trouble
from sensorpool.model.values import DueGroup, Milliseconds, ShardRange
from sensorpool.poke.cache import Cache
from sensorpool.poke.unit import PokeUnit
from sensorpool.store import loading, troubles

GROUPS_AT_ONCE = 10_000
_NEWCOMERS = 600_000  # milliseconds: a group that has waited longer than this is no newcomer


@dataclass(slots=True)
class Loaded:
    """What is due: groups that were left over come first, and groups that wait for their first poke last."""

    now: Milliseconds
    last: Milliseconds
    units: list[PokeUnit]
    recent: list[int]  # what the next load will find again as new
    troubles: dict[int, Trouble]  # of the range's groups


class Moment(NamedTuple):
    """The moment of a load by both clocks."""

    now: Milliseconds  # the database's
    monotonic: float  # this process's, in seconds
    trusted: bool  # whether deadlines may be judged by the database's clock

    def at(self, monotonic: float) -> Milliseconds:
        """Return a time of this process's clock by that of the database."""
        return self.now + int((monotonic - self.monotonic) * 1000)


def load(
    connection: Connection,
    cache: Cache,
    shard_range: ShardRange,
    held: Acquired,
    last: Milliseconds,
    now: Milliseconds,
    settings: Settings,
) -> Loaded:
    """Return what is due in one range. It asks for the groups that this process has not seen as they are now.

    :param last: the time of the last load.
    """
    overlap = settings.commit_overlap_ms
    rows = loading.due_groups(connection, shard_range, last=last, now=now, commit_overlap=overlap)
    left = {*held.state.left, *held.woken, *held.struck, *held.background.again}
    units = _look_up(connection, cache, rows, left)
    recent = [unit.group.id for unit in units if unit.group.registered_at > now - overlap]
    if poked_as_new := set(held.state.recent) - left:
        units = [unit for unit in units if unit.group.id not in poked_as_new or _is_due_again(unit.group, last, now)]
    # each job starts elsewhere in its range, so that no group always comes last
    start = (now // settings.tick_ms * 7_919) % len(units) if units else 0
    units = units[start:] + units[:start]
    if left:
        # the groups come first that have been left over for longest, or for a time that is not known
        since = {group_id: since_left(held.state.left, group_id, now) for group_id in left}
        units.sort(key=lambda unit: since.get(unit.group.id, now))
    # new groups wait for older ones, so that a storm of registrations makes no older group late
    units.sort(key=lambda unit: unit.group.registered_at > now - min(unit.group.poke_interval, _NEWCOMERS))
    return Loaded(now, last, units, recent, troubles.of_range(connection, shard_range))


def _look_up(connection: Connection, cache: Cache, rows: Sequence[loading.DueRow], left: set[int]) -> list[PokeUnit]:
    """Return what is due and what was left over, with the kept sensor of each; groups that are gone are not."""
    units, missing = cache.look_up(rows)
    if others := list(left.difference(row[0] for row in rows)):
        # there may be thousands, at each job of a range that waits for a budget
        kept, unknown = cache.look_up(loading.as_now(connection, others))
        units, missing = [*units, *kept], [*missing, *unknown]
    for start in range(0, len(missing), GROUPS_AT_ONCE):
        for found in loading.groups(connection, missing[start : start + GROUPS_AT_ONCE]):
            units.append(cache.keep(*found))
    return units


def since_left(known: Mapping[int, Milliseconds], group_id: int, now: Milliseconds) -> Milliseconds:
    """Return since when a group has been left over; 0: not known, as where a clock that was put back says: not yet."""
    since = known.get(group_id, 0)
    return since if since <= now else 0


def _is_due_again(group: DueGroup, last: Milliseconds, now: Milliseconds) -> bool:
    """Whether a group that was poked as new already is due for another reason than being new."""
    return is_due(
        poke_interval=group.poke_interval,
        phase=group.phase,
        registered_at=0,
        next_deadline=group.next_deadline,
        last=last,
        now=now,
        commit_overlap=0,
    )
