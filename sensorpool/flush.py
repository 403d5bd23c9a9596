"""One flush: facts become terminal states in one transaction, with the outbox row that has them published.

The only other way to a terminal state is to be called off (`call_off`); both go through `_close`, so that every writer
locks, writes and lets go in the same order.
"""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from sensorpool import settle
from sensorpool.errors import CountMismatch
from sensorpool.failpoint import failpoint
from sensorpool.logs import logger
from sensorpool.model import Fact, Flushed, Verdict
from sensorpool.states import Ending, Outcome, State
from sensorpool.store import closing
from sensorpool.store.database import Database, is_conflict, is_unreachable

GROUPS = 1_000  # in one flush
IDLE_LIMIT_MS = 3_000  # a process that freezes inside the transaction holds its locks no longer than this

log = logger(__name__)


def flush(database: Database, facts: Sequence[Fact], *, tick_ms: int, timeouts: bool = True) -> list[Flushed]:
    """Settle facts.

    A deadlock or a lost connection is tried again. On any other error the facts are bisected down to the one group
    that cannot be settled as its fact says; that one fails with a reason, and the others are settled.

    :raises Unreachable: when the database does not answer; then nothing of this is kept, and the groups are due again.
    """
    try:
        return [database.run(lambda connection: _settle(database, connection, facts, tick_ms, timeouts))]
    except (DBAPIError, CountMismatch) as error:
        if is_conflict(error) or is_unreachable(error):
            raise
        if len(facts) > 1:
            middle = len(facts) // 2
            return [
                flushed
                for half in (facts[:middle], facts[middle:])
                for flushed in flush(database, half, tick_ms=tick_ms, timeouts=timeouts)
            ]
        fact = facts[0]
        log.error(
            "a group cannot be settled as its poke says; it fails",
            group_id=fact.group_id,
            error=type(error).__name__,
        )
        if fact.outcome is Outcome.FAIL:
            raise
        failed = Fact(
            fact.group_id,
            fact.version,
            fact.began_at,
            Outcome.FAIL,
            f"its result could not be written ({type(error).__name__}); the poke said {fact.outcome}",
        )
        return flush(database, [failed], tick_ms=tick_ms, timeouts=timeouts)


def call_off(database: Database, reasons: Mapping[int, str], ending: Ending = Ending.CANCELLED) -> Flushed:
    """Cancel instances, by id, with the reason of each. Those that are not sensing stay as they are.

    :param ending: `Ending.HANDED_BACK` has the waiters poke by themselves.

    :raises Unreachable: when the database does not answer; then nothing is cancelled.
    """
    return database.run(lambda connection: call_off_in(database, connection, reasons, ending))


def call_off_in(
    database: Database, connection: Connection, reasons: Mapping[int, str], ending: Ending = Ending.CANCELLED
) -> Flushed:
    """Cancel instances inside a transaction that is going on."""
    closing.begin(connection, IDLE_LIMIT_MS)
    locked = closing.lock_groups(connection, set(closing.groups_of(connection, reasons).values()))
    groups = closing.groups_of(connection, reasons)  # some may have settled before we had the locks
    if not groups:
        return Flushed()
    group_ids = set(groups.values()) & set(locked)
    verdicts = [
        Verdict(instance_id, group_id, State.CANCELLED, ending, reasons[instance_id])
        for instance_id, group_id in groups.items()
    ]
    staying = {m.group_id for m in closing.sensing_members(connection, group_ids) if m.id not in groups}
    return _close(database, connection, verdicts, group_ids, staying)


def fail_groupless(database: Database, instances: Sequence[tuple[int, int]]) -> Flushed:
    """Fail sensing instances (id, group id) whose group is gone: only a hand on the tables makes them."""
    reason = "its poke group is gone: somebody changed the tables by hand"

    def change(connection: Connection) -> Flushed:
        closing.begin(connection, IDLE_LIMIT_MS)
        sensing = closing.groups_of(connection, [instance_id for instance_id, _ in instances])
        verdicts = [
            Verdict(instance_id, group_id, State.FAILED, Ending.FAIL, reason)
            for instance_id, group_id in sensing.items()
        ]
        return _close(database, connection, verdicts, (), ())

    return database.run(change)


def drop_empty_groups(database: Database, group_ids: Sequence[int]) -> int:
    """Drop groups that nobody senses in; return how many went.

    :raises CountMismatch: when somebody joined one of them meanwhile; then none goes.
    """

    def change(connection: Connection) -> int:
        closing.begin(connection, IDLE_LIMIT_MS)
        locked = closing.lock_groups(connection, group_ids)
        closing.let_go(connection, locked, ())
        return len(locked)

    return database.run(change)


def _settle(database: Database, connection: Connection, facts: Sequence[Fact], tick_ms: int, timeouts: bool) -> Flushed:
    by_group = {fact.group_id: fact for fact in facts}
    failpoint("settle.before")
    closing.begin(connection, IDLE_LIMIT_MS)
    locked = closing.lock_groups(connection, by_group)
    members = closing.sensing_members(connection, locked)
    decision = settle.decide(by_group, members, tick_ms=tick_ms, timeouts=timeouts)
    if not decision.verdicts and not decision.grown:
        return Flushed()
    if decision.grown:
        closing.write_steps(connection, decision.grown)
    ending = {verdict.instance_id for verdict in decision.verdicts}
    touched = {v.group_id for v in decision.verdicts} | {member.group_id for member, _ in decision.grown}
    staying = {m.group_id for m in members if m.id not in ending} & touched
    return _close(database, connection, decision.verdicts, touched, staying)


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
        flushed.settled = closing.write_verdicts(connection, verdicts, now)
    closing.let_go(connection, flushed.emptied, staying)
    if verdicts:
        ids = [verdict.instance_id for verdict in verdicts]
        flushed.outbox_id = closing.note_for_publishing(connection, ids, now)
    failpoint("settle.before_commit")
    return flushed
