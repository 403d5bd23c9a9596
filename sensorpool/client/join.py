"""Joins: an instance that waits for other instances."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sensorpool.client import validate, wait
from sensorpool.errors import KeyConflict, Refused, Unknown, Unreachable
from sensorpool.model.identity import MAX_CONTEXT_BYTES
from sensorpool.model.states import State
from sensorpool.model.values import LONGEST_SPAN, Instance, Key, Registration, Span

if TYPE_CHECKING:
    from sensorpool.client.pool import Pool

_MOST = 5_000  # ids in one context; of long ids fewer have room there
_AROUND = 20  # bytes of a context around its ids
_IN_VAIN = "the join that it is a part of came to nothing"


class Joined(NamedTuple):
    """The key of a join, how it tells of its end, and when it fails."""

    key: Key | None
    on_settled: Mapping[str, Any] | None
    on_success: Mapping[str, Any] | None
    on_failure: Mapping[str, Any] | None
    timeout: Span | None


def join(pool: "Pool", op_classpath: str, instance_ids: Iterable[wait.Named], joined: Joined) -> Instance:
    """Register a join of instances; of many, a join of joins.

    The inner joins end with their members, also when the outer one is cancelled. Where it is refused they are
    cancelled, unless a second registration under its key will find them.

    :raises Refused: when there is none, or an argument is neither an id nor an `Instance`.
    :raises Unknown: when there is no such instance, or another has the id of an `Instance` since a restore.
    :raises KeyConflict: when its key waits for something else.
    """
    named = wait.named(instance_ids)
    if not named:
        raise Refused("a join waits for at least one instance")
    wait.look(pool.database, named)
    wait.check_keys(pool.database, named)
    ids = sorted(named)
    if len(ids) > _in_one_context(ids):
        pool.check(_registration(op_classpath, ids[:1], pool, joined))  # before a part of it is kept
    level, inner = 0, list[Instance]()
    try:
        while len(ids) > (most := _in_one_context(ids)):
            level += 1
            parts = [
                _registration(
                    op_classpath, ids[start : start + most], pool, _part_of(joined.key, f"[{level}.{number}]")
                )
                for number, start in enumerate(range(0, len(ids), most))
            ]
            made = pool.register_many(parts)
            inner += made
            ids = [each.id for each in made]
        [outer] = pool.register_many([_registration(op_classpath, ids, pool, joined)])
    except Exception as error:
        inner += getattr(error, "registered", ())
        if inner and _is_final(error, joined.key):
            pool.take_back(inner, _IN_VAIN)
        raise
    try:
        wait.look(pool.database, named)
    except Unknown as error:  # one that ended long ago has been pruned before its join was there
        if pool.cancel(outer.id, str(error)) is State.CANCELLED:
            pool.take_back(inner, _IN_VAIN)
            raise
    return outer


def _is_final(error: Exception, key: Key | None) -> bool:
    """Whether no join will have use for the inner ones that are there when this error is raised."""
    if isinstance(error, Unreachable) and error.in_doubt:
        return False  # the outer one may be there
    return key is None or isinstance(error, KeyConflict)


def _in_one_context(ids: Sequence[int]) -> int:
    """Return how many ids have room in a context: after `db restored` an id has sixteen digits."""
    return min(_MOST, (MAX_CONTEXT_BYTES - _AROUND) // (len(str(max(ids))) + 1))


def _part_of(key: Key | None, suffix: str) -> Joined:
    """Return the terms of a join within another one: with a key, too, so that a second registration finds it."""
    if key is not None:
        task_id = key.task_id
        if len(task_id) + len(suffix) > validate.KEY_LENGTH:
            task_id = hashlib.sha256(task_id.encode()).hexdigest()
        key = key._replace(task_id=f"{task_id}{suffix}")
    return Joined(key, None, None, None, None)


def _registration(op_classpath: str, ids: Sequence[int], pool: "Pool", joined: Joined) -> Registration:
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
