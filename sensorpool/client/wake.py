"""Wake-ups: conditions are poked at once, because they may hold now, as their source says. The poll stays the truth."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from sensorpool.errors import Refused
from sensorpool.instrumentation.logs import logger
from sensorpool.model.identity import canonical_classpath, identify
from sensorpool.model.location import concerned, location_named
from sensorpool.model.values import ShardRange
from sensorpool.store import conditions

if TYPE_CHECKING:
    from sensorpool.client.pool import Pool

MOST = 10_000  # conditions that one call wakes
_NO_LOCATION = "is a URL like s3://bucket/folder/name"

log = logger(__name__)


class WakeUp(NamedTuple):
    """What may hold now: one condition, all below a prefix, or all that a change at a location concerns."""

    digest: bytes | None = None
    prefix: str | None = None
    location: str | None = None


def wake_up(
    op_classpath: str | None = None,
    poke_context: Mapping[str, Any] | None = None,
    *,
    prefix: str | None = None,
    location: str | None = None,
) -> WakeUp:
    """Check a wake-up.

    :raises Refused: when it does not name exactly one of a condition, a prefix and a location, or names it wrongly.
    """
    if sum(each is not None for each in (op_classpath, prefix, location)) != 1 or (
        poke_context is not None and op_classpath is None
    ):
        raise Refused("a wake-up names one of these: op_classpath and poke_context, prefix, location")
    if op_classpath is not None:
        return WakeUp(digest=identify(canonical_classpath(op_classpath), poke_context or {}).digest)
    if prefix is not None:
        if (where := location_named(prefix)) is None:
            raise Refused(f"prefix {_NO_LOCATION}")
        return WakeUp(prefix=where)
    if (where := location_named(location)) is None:
        raise Refused(f"location {_NO_LOCATION}")
    return WakeUp(location=where)


def wake(pool: "Pool", wake_ups: Iterable[WakeUp]) -> int:
    """Have the conditions poked at once that these wake-ups concern, `MOST` at most; return how many there are.

    :raises Refused: when the leases are in the memory of another process.
    :raises Unreachable: when the database or Redis does not answer.
    """
    if pool.is_test:
        return len(found(pool, wake_ups))  # none is poked by it, as nothing happens by itself there
    if pool.settings.embedded:
        raise Refused(
            "`sensorpool standalone` takes no orders from other processes: name a Redis in SENSORPOOL_REDIS_URL"
        )
    woken = found(pool, wake_ups)
    return len(woken) - _send(pool, woken) if woken else 0


def found(pool: "Pool", wake_ups: Iterable[WakeUp]) -> list[conditions.Woken]:
    """Return the conditions that these wake-ups concern, `MOST` at most.

    :raises Unreachable: when the database does not answer.
    """
    wanted = set(wake_ups)
    digests = {each.digest for each in wanted if each.digest is not None}
    locations = {where for each in wanted if each.location is not None for where in concerned(each.location)}
    groups = set(pool.database.read(conditions.of_digests, digests, MOST))
    groups.update(pool.database.read(conditions.of_locations, locations, MOST - len(groups)))
    for prefix in {each.prefix for each in wanted if each.prefix is not None}:
        if len(groups) < MOST:
            groups.update(pool.database.read(conditions.below, prefix, MOST))
    return [*islice(groups, MOST)]


def _send(pool: "Pool", woken: Collection[conditions.Woken]) -> int:
    """Wake groups; return how many are not, because too many wait already."""
    pool.workers()  # they say which ranges there are
    groups: dict[ShardRange, list[int]] = defaultdict(list)
    for each in woken:
        groups[pool.range_of(each.shardcode)].append(each.id)
    sent, dropped = pool.leases.waking.wake(groups)
    for shard_range in sent:
        pool.outbox.nudge(shard_range)
    if dropped:
        log.warning("there are too many wake-ups: some conditions are poked in their turn", dropped=dropped)
    return dropped
