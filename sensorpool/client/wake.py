"""Wake-ups: conditions are poked at once, because they may hold now, as their source says. The poll stays the truth."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from sensorpool.errors import Refused
from sensorpool.model.identity import canonical_classpath, identify
from sensorpool.model.location import concerned, location_named
from sensorpool.store import waking
from sensorpool.store.database import Database

MOST = 10_000  # conditions that one call wakes
_NO_LOCATION = "is a URL like s3://bucket/folder/name"


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


def conditions_of(database: Database, wake_ups: Iterable[WakeUp]) -> list[waking.Woken]:
    """Return the conditions that these wake-ups concern, `MOST` at most.

    :raises Unreachable: when the database does not answer.
    """
    wanted = set(wake_ups)
    digests = {each.digest for each in wanted if each.digest is not None}
    locations = {where for each in wanted if each.location is not None for where in concerned(each.location)}
    groups = set(database.read(waking.of_digests, digests, MOST))
    groups.update(database.read(waking.of_locations, locations, MOST - len(groups)))
    for prefix in {each.prefix for each in wanted if each.prefix is not None}:
        if len(groups) < MOST:
            groups.update(database.read(waking.below, prefix, MOST))
    return [*islice(groups, MOST)]
