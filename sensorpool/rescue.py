"""Rescue: one chore that finds what a dead process left half done, and what nobody needs any more.

Its limits: so many outbox rows, and so many windows of the tables, a round; the rest has its turn in the next ones.
Any number of rescuers may run at once: whatever one of them does twice is harmless.
"""

from dataclasses import asdict, dataclass, field

from sensorpool import extensions
from sensorpool.errors import CountMismatch, Unreachable
from sensorpool.flush import drop_empty_groups, fail_groupless
from sensorpool.logs import logger
from sensorpool.model import Flushed, shard_ranges
from sensorpool.publish import deliver
from sensorpool.store import barring, closing, loading, pruning
from sensorpool.worker import Worker

OUTBOX_ROWS = 200  # a round
OUTBOX_AGE = 5_000  # milliseconds: younger rows are somebody's who is about to publish them
WINDOW = 1_000  # rows looked at in one statement
WINDOWS = 20  # a round and table

RESCUERS = "sensorpool.rescuers"  # entry points: functions that take a worker, and return what they did by name

log = logger(__name__)


@dataclass(slots=True)
class Place:
    """How far the walk through the tables has come."""

    instance_id: int = 0
    group_id: int = 0


@dataclass(slots=True)
class Rescued:
    """What a round did."""

    published: int = 0  # outbox rows of dead processes
    strays: int = 0  # rows that only a hand on the tables could have made
    pruned: int = 0
    listeners: int = 0  # abandoned queues
    let_out: int = 0  # of quarantine
    folded: int = 0  # groups beyond a shard_code_upper_limit that was lowered
    more: dict[str, int] = field(default_factory=dict)  # what the rescuers of other packages did

    def as_dict(self) -> dict[str, int]:
        """Return what was not zero."""
        counted = asdict(self)
        return {name: value for name, value in (counted | counted.pop("more")).items() if value}


def rescue(worker: Worker, place: Place) -> Rescued:
    """Do one round; ``place`` moves on.

    :raises Unreachable: when the database does not answer.
    """
    done = Rescued()
    _publish_left_behind(worker, done)
    _walk_instances(worker, place, done)
    _walk_groups(worker, place, done)
    _fold_shardcodes(worker, done)
    _forget_suspects(worker)
    _look_at_what_is_refused(worker, done)
    try:
        done.listeners = worker.publisher.drop_abandoned_listeners()
    except Unreachable as error:
        log.warning("listeners were not looked after", error=str(error))
    for name, rescuer in extensions.load(RESCUERS).items():
        try:
            done.more |= rescuer(worker)
        except Exception as error:  # theirs must not cost us ours
            log.warning("a rescuer failed", rescuer=name, error=" ".join(str(error).split())[:300])
    if found := done.as_dict():
        log.info("rescued", **found)
    return done


def _publish_left_behind(worker: Worker, done: Rescued) -> None:
    database = worker.database
    now = database.read(database.now)
    rows = database.read(lambda connection: closing.unpublished(connection, now, OUTBOX_AGE, OUTBOX_ROWS))
    for outbox_id, instance_ids in rows:
        try:
            settled = database.read(lambda connection, ids=instance_ids: closing.settled(connection, ids))  # type: ignore[misc]
            if not deliver(database, worker.publisher, Flushed(settled, [], outbox_id)):
                return  # the broker is away; it would be for the next one too
        except Unreachable:
            raise
        except Exception:  # one row must not stop the rest, nor what else rescue does
            log.exception("results could not be published", instance_ids=instance_ids)
            continue
        done.published += 1


def _fold_shardcodes(worker: Worker, done: Rescued) -> None:
    """Bring groups into the ranges that there are: nobody would poke those beyond them."""
    database, limit = worker.database, worker.settings.shard_code_upper_limit
    for _ in range(WINDOWS):
        beyond = database.read(lambda connection: pruning.beyond(connection, limit, WINDOW))
        if beyond:
            done.folded += database.run(lambda connection, ids=beyond: pruning.fold(connection, ids, limit))  # type: ignore[misc]
        if len(beyond) < WINDOW:
            return


def _forget_suspects(worker: Worker) -> None:
    """Take those off the list of suspects whose group is gone: they ended while they hung."""
    settings, leases = worker.settings, worker.leases
    try:
        for shard_range in shard_ranges(settings.shards, settings.shard_code_upper_limit):
            if suspects := leases.suspects(shard_range):
                there = worker.database.read(lambda connection, ids=suspects: loading.there(connection, ids))  # type: ignore[misc]
                leases.clear_suspects(shard_range, set(suspects) - there)
    except Unreachable as error:
        log.warning("suspects were not looked after", error=str(error))


def _look_at_what_is_refused(worker: Worker, done: Rescued) -> None:
    """Let out who has been in quarantine for the retention, and note the DAGs that have too many sensors."""
    database, settings = worker.database, worker.settings
    now = database.read(database.now)
    done.let_out = database.run(lambda connection: barring.prune(connection, now - round(settings.retention * 1000)))
    over = database.run(lambda connection: barring.look_at_quotas(connection, settings.dag_quota, now))
    for dag_id, sensing in over.items():
        log.warning("a DAG is over its quota; no more of its sensors are taken", dag_id=dag_id, sensing=sensing)


def _walk_instances(worker: Worker, place: Place, done: Rescued) -> None:
    """Prune what is older than the retention; fail instances whose group is gone: nobody would poke for them."""
    database = worker.database
    before = database.read(database.now) - round(worker.settings.retention * 1000)
    for _ in range(WINDOWS):
        start = place.instance_id
        window = database.read(lambda c, start=start: pruning.look_at_instances(c, start, WINDOW, before))  # type: ignore[misc]
        if window.old:
            done.pruned += database.run(lambda c, ids=window.old: pruning.prune(c, ids))  # type: ignore[misc]
        if window.groupless:
            flushed = fail_groupless(database, window.groupless)
            deliver(database, worker.publisher, flushed)
            done.strays += len(flushed.settled)
        place.instance_id = window.last or 0
        if window.last is None:
            return


def _walk_groups(worker: Worker, place: Place, done: Rescued) -> None:
    """Drop groups that nobody senses in: they would be poked for nobody."""
    for _ in range(WINDOWS):
        start = place.group_id
        window = worker.database.read(lambda c, start=start: pruning.look_at_groups(c, start, WINDOW))  # type: ignore[misc]
        if window.empty:
            try:
                done.strays += drop_empty_groups(worker.database, window.empty)
            except CountMismatch:
                log.info("somebody joined a group that was about to go; it stays")
        place.group_id = window.last or 0
        if window.last is None:
            return
