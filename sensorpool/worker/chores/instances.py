"""Instances that nobody asks for any more go, and those end whose group is gone: no poke would ever end them.

At most 20 windows of 1,000 instances a round, and as many shared values as one window has rows.
"""

from sensorpool.store import inspecting, pruning, values
from sensorpool.worker.chores import windows
from sensorpool.worker.chores.round import Round


def prune_and_end(now: Round) -> None:
    """Prune instances that settled before the retention; fail sensing ones whose group is gone."""
    worker, place, done = now
    database = worker.database
    before = database.read(database.now) - round(worker.settings.retention * 1000)
    if (waiting := database.read(inspecting.oldest_unpublished)) is not None:
        before = min(before, waiting)  # what is not published yet is read from its rows
    database.run(values.prune, before, windows.ROWS)

    def look(after_id: int) -> pruning.Window:
        return database.read(pruning.look_at_instances, after_id, windows.ROWS, before)

    for window in windows.walk(look, place.instance_id):
        if window.old:
            done.pruned += database.run(pruning.prune, window.old)
        if window.groupless:
            done.strays += worker.settler.fail_groupless(window.groupless)
        place.instance_id = window.last or 0
