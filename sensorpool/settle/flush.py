"""One flush: facts become terminal states in one transaction, with the outbox row that has them published.

The other ways to a terminal state are to be cancelled (`cancel`) and to fail without a group (`fail_groupless`). All go
through `_close`, so that every writer locks, writes and lets go in the same order. `Settler` runs them.
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
from sensorpool.model.values import Fact, Flushed, Verdict
from sensorpool.settle import decide
from sensorpool.store import callbacks, outbox_rows, settling
from sensorpool.store.codes import is_data_error, is_locked
from sensorpool.store.database import Database
from sensorpool.store.transaction import ATTEMPTS

GROUPS = 1_000  # in one flush
BYTES = 16 * 2**20  # of values and reasons in one flush
_ATTEMPTS_ALONE = 3  # of a part of a flush: whole, it had its patience with other transactions
_LONGEST_CAUSE = 200  # characters
LOCKED = "another transaction holds a lock on it"

log = logger(__name__)


def flush(database: Database, facts: Sequence[Fact], *, tick_ms: int, timeouts: bool = True) -> list[Flushed]:
    """Settle facts.

    A deadlock or a lost connection is tried again. On any other error the facts are bisected down to the one group
    that cannot be settled as its fact says, and the others are settled. Where its result is to blame, that group fails
    with a reason. Where nothing is known to be, it stays as it is: `Flushed.unsettled` says why.

    :raises Unreachable: when the database does not answer; then nothing of this is kept, and the groups are due again.
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
    except Exception as error:  # whatever one group has about it must not cost the others their results
        if len(facts) > 1:
            middle = len(facts) // 2
            for half in (facts[:middle], facts[middle:]):
                yield from _flush(database, half, tick_ms, timeouts, _ATTEMPTS_ALONE)
        elif is_data_error(error) and (plainer := _plainer(facts[0], error)) is not None:
            log.warning(
                "the database refuses the result of a poke; it is written as far as it can be",
                group_id=facts[0].group_id,
                error=one_line(error),
            )
            yield from _flush(database, [plainer], tick_ms, timeouts, _ATTEMPTS_ALONE)
        else:
            yield Flushed(unsettled={facts[0].group_id: one_line(error)[:_LONGEST_CAUSE]})


def _plainer(fact: Fact, error: Exception) -> Fact | None:
    """Return what can be written of a fact whose texts the database refuses: the same in ASCII, or that it failed."""
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
    """Part facts into flushes of bounded number and weight."""
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
    """Cancel instances, by id, with the reason of each. Those that are not sensing stay as they are.

    :param ending: `Ending.HANDED_BACK` has the waiters poke by themselves.

    :raises Unreachable: when the database does not answer; then nothing is cancelled.
    """
    return database.transaction(kept=_is_kept).run(lambda connection: cancel_in(database, connection, reasons, ending))


def cancel_in(
    database: Database, connection: Connection, reasons: Mapping[int, str], ending: Ending = Ending.CANCELLED
) -> Flushed:
    """Cancel instances inside a transaction that is going on."""
    settling.begin(connection)
    locked = settling.lock_groups(connection, set(settling.groups_of(connection, reasons).values()))
    groups = settling.groups_of(connection, reasons)  # some may have settled before we had the locks
    if not groups:
        return Flushed()
    group_ids = set(groups.values()) & set(locked)
    verdicts = [
        Verdict(instance_id, group_id, State.CANCELLED, ending, reasons[instance_id])
        for instance_id, group_id in groups.items()
    ]
    staying = {m.group_id for m in settling.sensing_members(connection, group_ids) if m.id not in groups}
    return _close(database, connection, verdicts, group_ids, staying)


def fail_groupless(database: Database, instances: Sequence[tuple[int, int]]) -> Flushed:
    """Fail sensing instances (id, group id) whose group is gone: only a hand on the tables makes them."""
    reason = "its poke group is gone: somebody changed the tables by hand"

    def change(connection: Connection) -> Flushed:
        settling.begin(connection)
        sensing = settling.groups_of(connection, [instance_id for instance_id, _ in instances])
        verdicts = [
            Verdict(instance_id, group_id, State.FAILED, Ending.FAIL, reason)
            for instance_id, group_id in sensing.items()
        ]
        return _close(database, connection, verdicts, (), ())

    return database.transaction(kept=_is_kept).run(change)


def drop_empty_groups(database: Database, group_ids: Sequence[int]) -> int:
    """Drop groups that nobody senses in; return how many went.

    :raises CountMismatch: when somebody joined one of them meanwhile; then none goes.
    """

    def change(connection: Connection) -> int:
        settling.begin(connection)
        locked = settling.lock_groups(connection, group_ids)
        settling.let_go(connection, locked, ())
        return len(locked)

    return database.run(change)


def _is_kept(connection: Connection, flushed: Flushed) -> bool:
    """Whether a flush was committed whose COMMIT was not answered."""
    return flushed.outbox_id is not None and outbox_rows.is_noted(connection, flushed.outbox_id)


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

    :param free_only: leave the groups unsettled that another transaction has locked, or a member of them: they stop no
        others.
    """
    by_group = {fact.group_id: fact for fact in facts}
    failpoint("settle.before")
    settling.begin(connection)
    locked = settling.lock_groups(connection, by_group, free_only=free_only)
    passed_over = settling.there(connection, by_group.keys() - set(locked)) if free_only else set()
    unsettled = dict.fromkeys(passed_over, LOCKED)
    members = settling.sensing_members(connection, locked)
    if free_only and (held := settling.held_groups(connection, members)):  # whole: a group's members settle together
        unsettled |= dict.fromkeys(held, LOCKED)
        members = [member for member in members if member.group_id not in held]
    decision = decide.decide(by_group, members, tick_ms=tick_ms, timeouts=timeouts)
    if not decision.verdicts and not decision.grown:
        return Flushed(unsettled=unsettled)
    if decision.grown:
        settling.write_steps(connection, decision.grown)
    ending = {verdict.instance_id for verdict in decision.verdicts}
    touched = {v.group_id for v in decision.verdicts} | {member.group_id for member, _ in decision.grown}
    staying = {m.group_id for m in members if m.id not in ending} & touched
    flushed = _close(database, connection, decision.verdicts, touched, staying)
    flushed.unsettled = unsettled
    return flushed


def _close(
    database: Database,
    connection: Connection,
    verdicts: Sequence[Verdict],
    touched: Collection[int],
    staying: Collection[int],
) -> Flushed:
    """Write verdicts; let the emptied groups go; leave the outbox row. The groups are locked already."""
    flushed = Flushed(emptied=list(set(touched).difference(staying)))
    now = database.now(connection)
    if verdicts:
        flushed.settled = settling.write_verdicts(connection, verdicts, now)
    settling.let_go(connection, flushed.emptied, staying)
    if verdicts:
        ids = [verdict.instance_id for verdict in verdicts]
        flushed.outbox_id = outbox_rows.note(connection, ids, now)
        callbacks.note(connection, flushed.settled, now)
    failpoint("settle.before_commit")
    return flushed
