"""Joins: an instance that waits for other instances."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sensorpool.client import wait
from sensorpool.errors import Refused
from sensorpool.model.values import LONGEST_SPAN, Instance, Key, Registration, Span

if TYPE_CHECKING:
    from sensorpool.client.pool import Pool

_MOST = 5_000  # ids in one context, which has 64 KB


class Joined(NamedTuple):
    """The key of a join, how it tells of its end, and when it fails."""

    key: Key | None
    on_settled: Mapping[str, Any] | None
    on_success: Mapping[str, Any] | None
    on_failure: Mapping[str, Any] | None
    timeout: Span | None


_INNER = Joined(None, None, None, None, None)  # of a join within another one


def join(pool: "Pool", op_classpath: str, instance_ids: Iterable[wait.Named], joined: Joined) -> Instance:
    """Register a join of instances; of many, a join of joins.

    :raises Refused: when there is none, or an argument is neither an id nor an `Instance`.
    :raises Unknown: when there is no such instance, or another has the id of an `Instance` since a restore.
    """
    named = wait.named(instance_ids)
    if not named:
        raise Refused("a join waits for at least one instance")
    wait.look(pool.database, named)
    ids = sorted(named)
    while len(ids) > _MOST:
        parts = [ids[start : start + _MOST] for start in range(0, len(ids), _MOST)]
        ids = [each.id for each in pool.register_many([_registration(op_classpath, part, pool) for part in parts])]
    made = _registration(op_classpath, ids, pool, joined)
    return pool.register_many([made])[0]


def _registration(op_classpath: str, ids: Sequence[int], pool: "Pool", joined: Joined = _INNER) -> Registration:
    return Registration(
        sensor=op_classpath,
        poke_context={"instances": ids},
        key=joined.key,
        poke_interval=pool.settings.tick,
        timeout=LONGEST_SPAN if joined.timeout is None else joined.timeout,
        on_settled=joined.on_settled,
        on_success=joined.on_success,
        on_failure=joined.on_failure,
    )
