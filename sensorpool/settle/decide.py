"""The decision that turns facts into verdicts. Pure: no I/O, no clock.

A fact says which group at which version was poked, when the poke began, and what it saw. It is not a command: it
settles ``group_id = g AND joined_version <= v AND state = 'sensing'`` and nothing else, so a worker that was frozen
for an hour may hand in its facts late and do no harm. A timeout applies only if a poke that began at or after the
deadline found nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import assert_never

from sensorpool.model.due import step_at, whole_ticks
from sensorpool.model.execution_context import ExecutionContext
from sensorpool.model.states import INCONCLUSIVE, Ending, Outcome, State
from sensorpool.model.values import Fact, Member, Milliseconds, Verdict
from sensorpool.settle.judge import is_last

# what a failure is to a waiter whose own window is not over
_WHILE_RETRIED = {Outcome.POKE_ERROR: Outcome.INFRA_FAILURE, Outcome.UNPOKEABLE: Outcome.CANNOT_POKE}
_CONTEXTS = 128  # execution contexts kept as they were read: those of a flush are mostly equal


@dataclass(slots=True)
class Decision:
    """The writes of a flush: verdicts, and members whose step grows (AIP-17 ignored backoff)."""

    verdicts: list[Verdict] = field(default_factory=list)
    grown: list[tuple[Member, Milliseconds]] = field(default_factory=list)  # a member with its new deadline; its step


def matters(
    outcome: Outcome, began_at: Milliseconds, next_deadline: Milliseconds | None, timeouts: bool = True
) -> bool:
    """Whether an outcome can change a row: most pokes find nothing, and then nothing is read or written."""
    if outcome not in INCONCLUSIVE:
        return True
    return timeouts and next_deadline is not None and began_at >= next_deadline


def decide(facts: Mapping[int, Fact], members: Iterable[Member], *, tick_ms: Milliseconds, timeouts: bool) -> Decision:
    """Return the verdicts of the facts, by group id, on the sensing members of their groups.

    :param timeouts: False while the clock is in doubt; then no member times out.
    """
    decision = Decision()
    for member in members:
        fact = facts[member.group_id]
        if member.joined_version > fact.version:
            continue
        if fact.since is not None and member.start_date > fact.since:
            fact = fact._replace(outcome=_WHILE_RETRIED[fact.outcome], since=None)
        verdict = _conclude(fact, member, timeouts)
        if verdict is not None:
            decision.verdicts.append(verdict)
        elif timeouts and fact.began_at >= member.next_deadline and fact.outcome is not Outcome.CANNOT_POKE:
            decision.grown.append(_grow(fact, member, tick_ms))
    return decision


def _conclude(fact: Fact, member: Member, timeouts: bool) -> Verdict | None:
    """Apply the fact to one member, by the rules of ``BaseSensorOperator.execute`` in Airflow 3."""
    late = timeouts and fact.began_at >= member.timeout_at
    match fact.outcome:
        case Outcome.LANDED:
            return Verdict(member.id, member.group_id, State.SUCCESS, Ending.LANDED, None, fact.xcom_value)
        case Outcome.SKIP:
            return Verdict(member.id, member.group_id, State.SKIPPED, Ending.SKIP, fact.reason)
        case Outcome.HAND_BACK:
            return _hand_back(fact, member)
        case Outcome.POKE_TIMEOUT if member.takes_back and _needs_more_time(fact, member, late):
            return _hand_back(fact, member)
        case Outcome.POKE_ERROR:
            context = _execution_context(member)
            if context.silent_fail:
                return _timeout(fact, member, context) if late else None
            state = State.SKIPPED if context.never_fail else State.FAILED
            return Verdict(member.id, member.group_id, state, Ending.POKE_ERROR, fact.reason)
        case Outcome.EXITED:  # Airflow looks at the flags under ``except Exception``, which does not catch it
            return Verdict(member.id, member.group_id, State.FAILED, Ending.POKE_ERROR, fact.reason)
        case Outcome.UNPOKEABLE if member.takes_back:
            return _hand_back(fact, member)
        case Outcome.FAIL | Outcome.UNPOKEABLE:
            context = _execution_context(member)
            state = State.SKIPPED if context.soft_fail or context.never_fail else State.FAILED
            return Verdict(member.id, member.group_id, state, Ending.FAIL, fact.reason)
        case Outcome.CANNOT_POKE if member.takes_back:
            return _hand_back(fact, member) if late else None  # its task pokes once before it times out
        case Outcome.NOT_LANDED | Outcome.POKE_TIMEOUT | Outcome.INFRA_FAILURE | Outcome.CRASHED | Outcome.CANNOT_POKE:
            return _timeout(fact, member, _execution_context(member)) if late else None
        case _ as never:
            assert_never(never)


def _hand_back(fact: Fact, member: Member) -> Verdict:
    """Return the verdict by which the waiter pokes by itself."""
    return Verdict(member.id, member.group_id, State.CANCELLED, Ending.HANDED_BACK, fact.reason)


def _execution_context(member: Member) -> ExecutionContext:
    return _read(member.execution_context, member.timeout_at - member.start_date)


@lru_cache(maxsize=_CONTEXTS)
def _read(text: str, waits_for: Milliseconds) -> ExecutionContext:
    return ExecutionContext.from_text(text, waits_for / 1000)


def _needs_more_time(fact: Fact, member: Member, late: bool) -> bool:
    """Whether the waiter should make a poke that overran; not at its execution_timeout, which ends it anyway."""
    if late and _execution_context(member).ends_execution:
        return False
    return is_last(fact) or (late and fact.overruns_left is not None)


def _timeout(fact: Fact, member: Member, context: ExecutionContext) -> Verdict:
    """Time a member out: Airflow's sensor timeout, skipped under soft_fail; or its execution_timeout, always failed."""
    waited = (fact.began_at - member.start_date) / 1000
    if context.ends_execution:
        limit = f"execution_timeout of {context.execution_timeout:g} s"
        state, ending = State.FAILED, Ending.EXECUTION_TIMEOUT
    else:
        state, ending = State.SKIPPED if context.soft_fail else State.FAILED, Ending.TIMEOUT
        limit = f"timeout of {context.timeout:g} s"
    saw = f"; its last poke: {fact.outcome}" + (f", {fact.reason}" if fact.reason else "")
    return Verdict(member.id, member.group_id, state, ending, f"waited {waited:.1f} s, more than its {limit}{saw}")


def _grow(fact: Fact, member: Member, tick_ms: Milliseconds) -> tuple[Member, Milliseconds]:
    """Return the member with its next deadline, and its new step."""
    context = _execution_context(member)
    step, grows_after = step_at(
        fact.began_at - member.start_date,
        round(context.poke_interval * 1000),
        None if context.max_wait is None else round(context.max_wait * 1000),
    )
    deadline = member.timeout_at
    if grows_after is not None:
        deadline = min(deadline, member.start_date + grows_after)
    return member._replace(next_deadline=deadline), whole_ticks(step / 1000, tick_ms)
