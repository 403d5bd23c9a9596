"""Load: what is due in a range, and the sensors of the groups that are.

The query is the scheduler (`sensorpool.model.due` is its rule). Between two loads of a range lies the time ``last``; it
is known from the state that the last holder left or, if Redis lost that, from what this process itself remembers. If
nobody knows, the whole range is due once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from sensorpool.config.settings import Settings
from sensorpool.leases.lease import Acquired
from sensorpool.leases.range_state import RangeState
from sensorpool.model.due import is_due
from sensorpool.model.values import DueGroup, Milliseconds, ShardRange
from sensorpool.poke.cache import Cache
from sensorpool.poke.unit import PokeUnit
from sensorpool.store import loading

GROUPS_AT_ONCE = 10_000
_NEWCOMERS = 600_000  # milliseconds: whoever has waited for longer is none, whatever the interval


@dataclass(slots=True)
class Loaded:
    """What is due: those that were left over first, and those who wait for their first poke last."""

    now: Milliseconds
    last: Milliseconds
    ones: list[PokeUnit]
    recent: list[int]  # what the next load will find again as new
    not_here: set[int] = field(default_factory=set)  # stranded, and not looked for: this process cannot poke them


class LastLoads:
    """What this process remembers of the ranges that it loaded, should Redis forget."""

    def __init__(self) -> None:
        self._last: dict[ShardRange, Milliseconds] = {}

    def last(self, shard_range: ShardRange, state: RangeState, now: Milliseconds) -> Milliseconds:
        """Return the last load of a range; one that lies in the future counts as lost."""
        candidates = (state.last, self._last.get(shard_range, 0))
        return max((last for last in candidates if last <= now), default=0)

    def remember(self, shard_range: ShardRange, now: Milliseconds) -> None:
        """Remember a load whose groups have all been poked."""
        self._last[shard_range] = now


def load(
    connection: Connection,
    cache: Cache,
    shard_range: ShardRange,
    held: Acquired,
    last_loads: LastLoads,
    now: Milliseconds,
    settings: Settings,
) -> Loaded:
    """Ask what is due: one statement, and one more for groups that this process has not seen as they are now."""
    last = last_loads.last(shard_range, held.state, now)
    overlap = round(settings.commit_overlap * 1000)
    rows = loading.due_groups(connection, shard_range, last=last, now=now, commit_overlap=overlap)
    # who came so late that the statement passes them over, and was not poked as new all the same
    not_here = cache.not_here(held.state.stranded) if held.state.stranded else set()
    left = (set(held.state.left) | set(held.late).difference(held.state.recent)) - not_here
    ones = _look_up(connection, cache, rows, left)
    new_after = now - overlap
    recent = [one.group.id for one in ones if one.group.registered_at > new_after] if cache.newest > new_after else []
    if poked_as_new := set(held.state.recent) - left:
        ones = [one for one in ones if one.group.id not in poked_as_new or _is_due_again(one.group, last, now)]
    # each job starts elsewhere in its range, so that nobody always comes last
    start = (now // settings.tick_ms * 7_919) % len(ones) if ones else 0
    ones = ones[start:] + ones[:start]
    if left:
        # those first that have been left over for longest, or nobody knows since when
        since = held.state.left_since
        ones.sort(key=lambda one: since_left(since, one.group.id, now) if one.group.id in left else now)
    if cache.newest > now - _NEWCOMERS:
        # and a storm of registrations waits for those who were there before
        ones.sort(key=lambda one: one.group.registered_at > now - one.group.poke_interval)
    return Loaded(now, last, ones, recent, not_here)


def _look_up(connection: Connection, cache: Cache, rows: Sequence[loading.DueRow], left: set[int]) -> list[PokeUnit]:
    """Return what is due and what was left over, with the kept sensor of each; groups that are gone are not."""
    ones, missing = cache.look_up(rows)
    if left:
        missing = [*missing, *left.difference(row[0] for row in rows)]
    for start in range(0, len(missing), GROUPS_AT_ONCE):
        for group, op_classpath, poke_context in loading.groups(connection, missing[start : start + GROUPS_AT_ONCE]):
            ones.append(cache.keep(group, op_classpath, poke_context))
    return ones


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
