"""Deletes what is old, some pages of rows a round, and lets conditions out of quarantine."""

from sensorpool.store import action_log, class_proofs, inspecting, landings, pruning, troubles
from sensorpool.worker.chores import round as limits
from sensorpool.worker.chores.round import Round

PROOFS_KEPT = 7 * 24 * 3_600_000  # milliseconds: then a class is proved anew on a worker


def prune_instances(now: Round) -> None:
    """Prune instances that settled before the retention, and what is kept for them."""
    database, place = now.database, now.place
    now_ms = database.read(database.now)
    before = now_ms - round(now.settings.retention * 1000)
    if (waiting := database.read(inspecting.oldest_unpublished)) is not None:
        before = min(before, waiting)  # what is not published yet is read from its rows
    for _ in range(limits.PAGES):
        old, last = database.read(pruning.look_at_instances, place.instances, limits.ROWS, before)
        if old:
            now.done.pruned += database.run(pruning.prune, old)
        place.instances = last or 0
        if last is None:
            break
    database.run(class_proofs.prune, now_ms - PROOFS_KEPT, limits.ROWS)
    database.run(troubles.forget_gone)


def prune_records(now: Round) -> None:
    """Prune the records of conditions that ended, and of operators' actions, after their own retention."""
    database = now.database
    before = database.read(database.now) - round(now.settings.landing_retention * 1000)
    database.run(action_log.prune, before, limits.ROWS)
    for _ in range(limits.PAGES):
        if database.run(landings.prune, before, limits.ROWS) < limits.ROWS:
            return


def fold_shardcodes(now: Round) -> None:
    """Bring groups beyond the ranges into one of them: no job pokes a group beyond them."""
    database, limit = now.database, now.settings.shard_code_upper_limit
    for _ in range(limits.PAGES):
        beyond = database.read(pruning.beyond, limit, limits.ROWS)
        if beyond:
            now.done.folded += database.run(pruning.fold, beyond, limit)
        if len(beyond) < limits.ROWS:
            return


def let_out(now: Round) -> None:
    """Let conditions out that have been in quarantine for the retention."""
    before = now.database.read(now.database.now) - round(now.settings.retention * 1000)
    now.done.let_out = now.database.run(troubles.prune_quarantine, before)
