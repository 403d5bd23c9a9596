"""The rows of checked registrations: a group for each distinct condition, and an instance for each. Pure."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from sensorpool.client.validate import CheckedRegistration
from sensorpool.model.due import step_at, whole_ticks
from sensorpool.model.execution_context import ExecutionContext
from sensorpool.model.identity import shardcode
from sensorpool.model.values import Key, Milliseconds
from sensorpool.store.rows import NewGroup, NewInstance

_OPERATOR_LENGTH = 250


def rows_of(
    checked: Sequence[CheckedRegistration], *, tick_ms: Milliseconds, shard_code_upper_limit: int
) -> tuple[dict[bytes, NewGroup], dict[Key, NewInstance]]:
    """Return the groups by digest, in hashcode order, which is the order of locks; and the instances by key."""
    groups: dict[bytes, NewGroup] = {}
    instances: dict[Key, NewInstance] = {}
    for each in checked:
        identity, spans = each.identity, _spans(each.execution_context, tick_ms)
        group = groups.get(identity.digest)
        if group is None:
            groups[identity.digest] = _group(each, spans, identity.phase, shard_code_upper_limit)
        else:
            groups[identity.digest] = group._replace(
                members=group.members + 1,
                poke_interval=min(group.poke_interval, spans.step),
                next_deadline=min(group.next_deadline, spans.deadline),
            )
        instances[each.key] = _instance(each, spans)
    in_order = sorted(groups.values(), key=lambda group: (group.hashcode, group.digest))
    return {group.digest: group for group in in_order}, instances


class _Spans(NamedTuple):
    """The spans in the row of an instance: its first step, and the times of its next deadline and its timeout."""

    text: str
    step: Milliseconds
    deadline: Milliseconds
    timeout: Milliseconds


@lru_cache(maxsize=1_000)
def _spans(context: ExecutionContext, tick_ms: Milliseconds) -> _Spans:
    """Return the spans of an execution context. Cached, because nearly all registrations have the same one."""
    timeout = deadline = round(context.limit * 1000)
    if context.exponential_backoff:
        most = None if context.max_wait is None else round(context.max_wait * 1000)
        _, grows_after = step_at(0, round(context.poke_interval * 1000), most)
        if grows_after is not None:
            deadline = min(deadline, grows_after)
    return _Spans(
        text=context.as_text(),
        step=whole_ticks(context.poke_interval, tick_ms),
        deadline=deadline,
        timeout=timeout,
    )


def _group(each: CheckedRegistration, spans: _Spans, phase: int, shard_code_upper_limit: int) -> NewGroup:
    """Return a group that a registration opens. Its first waiter says which series of conditions it belongs to."""
    identity = each.identity
    return NewGroup(
        digest=identity.digest,
        hashcode=identity.hashcode,
        shardcode=shardcode(identity.hashcode, shard_code_upper_limit),
        members=1,
        op_classpath=identity.op_classpath,
        poke_context=identity.poke_context,
        poke_interval=spans.step,
        phase=phase,
        next_deadline=spans.deadline,
        family=each.family,
        backend=each.backend,
        location=each.location,
        logical_date=each.logical_date,
    )


def _instance(each: CheckedRegistration, spans: _Spans) -> NewInstance:
    key = each.key
    return NewInstance(
        joined_digest=each.identity.digest,
        dag_id=key.dag_id,
        task_id=key.task_id,
        run_id=key.run_id,
        map_index=key.map_index,
        try_number=key.try_number,
        external_id=each.external_id,
        logical_date=each.logical_date,
        operator=each.identity.op_classpath.rpartition(".")[2][:_OPERATOR_LENGTH],
        execution_context=spans.text,
        step=spans.step,
        timeout=spans.timeout,
        deadline=spans.deadline,
        on_settled=each.on_settled,
    )
