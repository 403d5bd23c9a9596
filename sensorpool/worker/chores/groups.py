"""Deletes groups without a sensing instance, and brings groups beyond the ranges into a range.

At most 20 pages of 1,000 groups a round, for each of the two.
"""

from sensorpool.errors import CountMismatch
from sensorpool.instrumentation.logs import logger
from sensorpool.settle.flush import drop_empty_groups
from sensorpool.store import pruning, troubles
from sensorpool.worker.chores import pages
from sensorpool.worker.chores.round import Round

log = logger(__name__)


def drop_empty(now: Round) -> None:
    """Drop groups without a sensing instance: their pokes would be in vain."""
    worker, place, done = now

    def look(after_id: int) -> pruning.Page:
        return worker.database.read(pruning.look_at_groups, after_id, pages.ROWS)

    for page in place.groups.pages(look):
        if page.empty:
            try:
                done.strays += drop_empty_groups(worker.database, page.empty)
            except CountMismatch:
                log.info("an instance joined a group that was about to go; the group stays")


def fold_shardcodes(now: Round) -> None:
    """Bring groups beyond the ranges into one of them: no job pokes a group beyond them."""
    worker, _, done = now
    database, limit = worker.database, worker.settings.shard_code_upper_limit
    for _ in range(pages.PAGES):
        beyond = database.read(pruning.beyond, limit, pages.ROWS)
        if beyond:
            done.folded += database.run(pruning.fold, beyond, limit)
        if len(beyond) < pages.ROWS:
            return


def forget_troubles(now: Round) -> None:
    """Forget the troubles of groups that are gone."""
    now.worker.database.run(troubles.forget_gone)
