"""Deletes the records of operators' actions that are older than `Settings.landing_retention`, a page at a time."""

from sensorpool.store import action_log
from sensorpool.worker.chores import pages
from sensorpool.worker.chores.round import Round


def prune(now: Round) -> None:
    """Prune the oldest records, a page."""
    database, settings = now.worker.database, now.worker.settings
    database.run(action_log.prune, database.read(database.now) - round(settings.landing_retention * 1000), pages.ROWS)
