"""Deletes the records of conditions that ended longer ago than `Settings.landing_retention`, a page at a time."""

from sensorpool.store import landings
from sensorpool.worker.chores import pages
from sensorpool.worker.chores.round import Round


def prune(now: Round) -> None:
    """Prune the oldest records, a bounded number of pages."""
    database, settings = now.worker.database, now.worker.settings
    before = database.read(database.now) - round(settings.landing_retention * 1000)
    for _ in range(pages.PAGES):
        if database.run(landings.prune, before, pages.ROWS) < pages.ROWS:
            return
