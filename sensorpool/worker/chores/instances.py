"""Deletes settled instances after the retention, and ends instances whose group is gone: no poke would end these.

At most 20 pages of 1,000 instances a round, and as many proofs of classes as one page has rows.
"""

from sensorpool.store import class_proofs, inspecting, pruning
from sensorpool.worker.chores import pages
from sensorpool.worker.chores.round import Round

PROOFS_KEPT = 7 * 24 * 3_600_000  # milliseconds: then a class is proved anew on a worker


def prune_and_end(now: Round) -> None:
    """Prune instances that settled before the retention; fail sensing ones whose group is gone."""
    worker, place, done = now
    database = worker.database
    now_ms = database.read(database.now)
    before = now_ms - round(worker.settings.retention * 1000)
    if (waiting := database.read(inspecting.oldest_unpublished)) is not None:
        before = min(before, waiting)  # what is not published yet is read from its rows

    def look(after_id: int) -> pruning.Page:
        return database.read(pruning.look_at_instances, after_id, pages.ROWS, before)

    for page in place.instances.pages(look):
        if page.old:
            done.pruned += database.run(pruning.prune, page.old)
        if page.groupless:
            done.strays += worker.settler.fail_groupless(page.groupless)
    database.run(class_proofs.prune, now_ms - PROOFS_KEPT, pages.ROWS)
