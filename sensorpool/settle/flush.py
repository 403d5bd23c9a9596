"""One flush: facts become terminal states in one transaction, with an outbox row for their publication.

The other way to a terminal state is `cancel`. Both end in `_close`, so that every writer locks groups, writes members
and deletes empty groups in the same order. `Settler` calls them.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from sensorpool.errors import SchemaMismatch, Unreachable
from sensorpool.instrumentation.failpoint import failpoint
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.states import Ending, Outcome, State
from sensorpool.model.values import Fact, Flushed, Milliseconds, Verdict
from sensorpool.settle import decide
from sensorpool.store import callback_rows, outbox_rows, settling
from sensorpool.store.database import Database
from sensorpool.store.database_errors import is_data_error, is_locked
from sensorpool.store.transaction import ATTEMPTS

GROUPS = 1_000  # in one flush
BYTES = 16 * 2**20  # of values and reasons in one flush
_ATTEMPTS_ALONE = 3  # for a part of a flush: the whole flush has waited for other transactions already
_LONGEST_CAUSE = 200  # characters
_LOCKED = "another transaction holds a lock on it"

log = logger(__name__)


def flush(database: Database, facts: Sequence[Fact], *, tick_ms: int, timeouts: bool = True) -> list[Flushed]:
    """Settle facts.

    After a deadlock or a lost connection the flush is tried again. On any other error the facts are bisected down to
    the one group that cannot be settled, and the other groups are settled. If its result is to blame, the group fails
    with a reason. If the cause is not known, the group stays sensing: `Flushed.unsettled` has the error.

    :raises Unreachable: when the database does not answer; then nothing is kept, and the groups are due again.
    """
    done = list(_flush(database, facts, tick_ms, timeouts))
    causes = {group_id: cause for flushed in done for group_id, cause in flushed.unsettled.items()}
    if causes:
        group_id, cause = next(iter(causes.items()))
        log.error(
            "groups cannot be settled as their pokes say; they are poked again",
            groups=len(causes),
            group_id=group_id,
            error=cause,
        )
    return done


def _flush(
    database: Database, facts: Sequence[Fact], tick_ms: int, timeouts: bool, attempts: int = ATTEMPTS
) -> Iterator[Flushed]:
    locked: list[bool] = []  # whether an attempt waited for a lock in vain

    def change(connection: Connection) -> Flushed:
        try:
            return _settle(database, connection, facts, tick_ms, timeouts, free_only=bool(locked))
        except DBAPIError as error:
            if is_locked(error):
                locked.append(True)
            raise

    try:
        yield database.transaction(attempts=attempts, kept=_is_kept).run(change)
    except (Unreachable, SchemaMismatch):
        raise
    except Exception as error:  # one bad group must not cost the others their results
        if len(facts) > 1:
            middle = len(facts) // 2
            for half in (facts[:middle], facts[middle:]):
                yield from _flush(database, half, tick_ms, timeouts, _ATTEMPTS_ALONE)
        elif is_data_error(error) and (plainer := _plainer(facts[0], error)) is not None:
            log.warning(
                "the database refuses the result of a poke; the result is written in ASCII or fails",
                group_id=facts[0].group_id,
                error=one_line(error),
            )
            yield from _flush(database, [plainer], tick_ms, timeouts, _ATTEMPTS_ALONE)
        else:
            yield Flushed(unsettled={facts[0].group_id: one_line(error)[:_LONGEST_CAUSE]})


def _plainer(fact: Fact, error: Exception) -> Fact | None:
    """Return the fact that can be written in place of one whose texts are refused: in ASCII, or a failure; or None."""
    xcom_value, reason = fact.xcom_value, fact.reason
    if xcom_value is not None and not xcom_value.isascii():
        xcom_value = json.dumps(json.loads(xcom_value))
    if reason is not None and not reason.isascii():
        reason = reason.encode("ascii", "backslashreplace").decode()
    if (xcom_value, reason) != (fact.xcom_value, fact.reason):
        return fact._replace(xcom_value=xcom_value, reason=reason)
    if fact.outcome is Outcome.FAIL:
        return None
    why = f"its result could not be written ({type(error).__name__}); the poke said {fact.outcome}"
    return Fact(fact.group_id, fact.version, fact.began_at, Outcome.FAIL, why)


def in_flushes(facts: Sequence[Fact]) -> Iterator[Sequence[Fact]]:
    """Yield the facts in flushes of bounded number and weight."""
    start = weight = 0
    for place, fact in enumerate(facts):
        own = len(fact.xcom_value or "") + len(fact.reason or "")
        if place - start >= GROUPS or (weight + own > BYTES and place > start):
            yield facts[start:place]
            start, weight = place, 0
        weight += own
    if start < len(facts):
        yield facts[start:] if start else facts


def cancel(database: Database, reasons: Mapping[int, str], ending: Ending = Ending.CANCELLED) -> Flushed:
    """Cancel instances, by id, each with its reason. An instance that is not sensing stays as it is.

    :param ending: `Ending.HANDED_BACK` has the waiters poke by themselves.

    :raises Unreachable: when the database does not answer; then nothing is cancelled.
    """
    return database.transaction(kept=_is_kept).run(lambda connection: cancel_in(database, connection, reasons, ending))


def cancel_in(
    database: Database, connection: Connection, reasons: Mapping[int, str], ending: Ending = Ending.CANCELLED
) -> Flushed:
    """Cancel instances inside of the caller's transaction."""
    clock = settling.begin(connection)
    locked = settling.lock_groups(connection, set(settling.groups_of(connection, reasons).values()))
    groups = settling.groups_of(connection, reasons)  # again: some may have settled before we had the locks
    if not groups:
        return Flushed()
    group_ids = set(groups.values()) & locked
    verdicts = [
        Verdict(instance_id, group_id, State.CANCELLED, ending, reasons[instance_id])
        for instance_id, group_id in groups.items()
    ]
    staying = {m.group_id for m in settling.sensing_members(connection, group_ids) if m.id not in groups}
    return _close(database.now(connection, clock), connection, verdicts, group_ids, staying)


def _is_kept(connection: Connection, flushed: Flushed) -> bool:
    """Whether a flush whose COMMIT had no answer was committed."""
    ids = [each.id for each in flushed.settled]
    return flushed.outbox_id is not None and outbox_rows.is_noted(connection, flushed.outbox_id, ids)


def _settle(
    database: Database,
    connection: Connection,
    facts: Sequence[Fact],
    tick_ms: int,
    timeouts: bool,
    *,
    free_only: bool,
) -> Flushed:
    """Settle facts in a transaction.

    :param free_only: leave a group unsettled if another transaction has locked it or one of its members; the other
        groups are settled.
    """
    by_group = {fact.group_id: fact for fact in facts}
    failpoint("settle.before")
    clock = settling.begin(connection)
    locked = settling.lock_groups(connection, by_group, free_only=free_only)
    passed_over = settling.there(connection, by_group.keys() - locked) if free_only else set()
    unsettled = dict.fromkeys(passed_over, _LOCKED)
    members = settling.sensing_members(connection, locked)
    empty = locked - {member.group_id for member in members}  # by a change of the tables by hand
    if free_only and (held := settling.held_groups(connection, members)):  # a group's members settle together
        unsettled |= dict.fromkeys(held, _LOCKED)
        members = [member for member in members if member.group_id not in held]
    decision = decide.decide(by_group, members, tick_ms=tick_ms, timeouts=timeouts)
    if not (decision.verdicts or decision.grown or empty):
        return Flushed(unsettled=unsettled)
    if decision.grown:
        settling.write_steps(connection, decision.grown)
    ending = {verdict.instance_id for verdict in decision.verdicts}
    touched = {v.group_id for v in decision.verdicts} | {member.group_id for member, _ in decision.grown} | empty
    staying = {m.group_id for m in members if m.id not in ending} & touched
    flushed = _close(database.now(connection, clock), connection, decision.verdicts, touched, staying)
    flushed.unsettled = unsettled
    return flushed


def _close(
    now: Milliseconds,
    connection: Connection,
    verdicts: Sequence[Verdict],
    touched: Collection[int],
    staying: Collection[int],
) -> Flushed:
    """Write verdicts, delete emptied groups, and insert the outbox row. The groups are locked already."""
    empty = [group_id for group_id in touched if group_id not in staying]
    flushed = Flushed(emptied=empty)
    if verdicts:
        flushed.settled = settling.write_verdicts(connection, verdicts, now)
    settling.let_go(connection, empty, staying)
    if verdicts:
        ids = [verdict.instance_id for verdict in verdicts]
        flushed.outbox_id = outbox_rows.note(connection, ids, now)
        callback_rows.note(connection, flushed.settled, now)
    failpoint("settle.before_commit")
    return flushed
