"""Lets conditions out of quarantine after the retention."""

from sensorpool.store import troubles
from sensorpool.worker.chores.round import Round


def let_out(now: Round) -> None:
    """Let conditions out that have been in quarantine for the retention."""
    database, settings = now.worker.database, now.worker.settings
    before = database.read(database.now) - round(settings.retention * 1000)
    now.done.let_out = database.run(troubles.prune_quarantine, before)
