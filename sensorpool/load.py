"""Load: what is due in a range, and the sensors of the groups that are.

The query is the scheduler (`sensorpool.due` is its rule). Between two loads of a range lies the time ``last``; it is
known from the state that the last holder left or, if Redis lost that, from what this process itself remembers. If
nobody knows, the whole range is due once.
"""

from dataclasses import dataclass

from sensorpool.due import is_due
from sensorpool.lease import Held, RangeState
from sensorpool.model import DueGroup, Milliseconds, ShardRange
from sensorpool.poke.cache import Cache, Kept
from sensorpool.settings import Settings
from sensorpool.store import loading
from sensorpool.store.database import Database

CONTEXTS_AT_ONCE = 10_000


@dataclass(slots=True)
class Loaded:
    """What is due, those that were left over first."""

    now: Milliseconds
    last: Milliseconds
    groups: list[DueGroup]
    recent: list[int]  # what the next load will find again as new


class Memory:
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
    database: Database,
    shard_range: ShardRange,
    held: Held,
    memory: Memory,
    now: Milliseconds,
    settings: Settings,
) -> Loaded:
    """Ask what is due. One statement, and one more if the last job left something over.

    :raises Unreachable: when the database does not answer.
    """
    last = memory.last(shard_range, held.state, now)
    overlap = round(settings.commit_overlap * 1000)
    left = set(held.state.left)

    def ask(connection: object) -> list[DueGroup]:
        due = loading.due_groups(connection, shard_range, last=last, now=now, commit_overlap=overlap)  # type: ignore[arg-type]
        missing = left - {group.id for group in due}
        return loading.groups_by_id(connection, list(missing)) + due if missing else due  # type: ignore[arg-type]

    found = database.read(ask)
    poked_as_new = set(held.state.recent) - left
    due = [group for group in found if group.id not in poked_as_new or _is_due_again(group, last, now)]
    first = [group for group in due if group.id in left]
    rest = [group for group in due if group.id not in left]
    # each job starts elsewhere in its range, so that nobody always comes last
    start = (now // settings.tick_ms * 7_919) % len(rest) if rest else 0
    recent = [group.id for group in found if group.registered_at > now - overlap]
    return Loaded(now, last, first + rest[start:] + rest[:start], recent)


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


def look_up(database: Database, cache: Cache, groups: list[DueGroup]) -> list[tuple[DueGroup, Kept]]:
    """Return each group with its kept sensor. Contexts that this process has not seen come by one more statement.

    :raises Unreachable: when the database does not answer.
    """
    hits, missing = cache.look_up(groups)
    by_id = {group.id: group for group in missing}
    ids = list(by_id)
    for start in range(0, len(ids), CONTEXTS_AT_ONCE):
        some = ids[start : start + CONTEXTS_AT_ONCE]
        for group_id, op_classpath, poke_context in database.read(lambda c, some=some: loading.contexts(c, some)):  # type: ignore[misc]
            hits[group_id] = cache.keep(by_id[group_id], op_classpath, poke_context)
    return [(group, hits[group.id]) for group in groups if group.id in hits]
