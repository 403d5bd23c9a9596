"""Forgets what Redis knows of suspects and of unsettled groups, once the groups are gone.

One question for each list that is not empty; the lists are bounded where they are written.
"""

from sensorpool.model.values import shard_ranges
from sensorpool.store import loading
from sensorpool.worker.chores.round import Round


def forget_gone(now: Round) -> None:
    """Take groups that are gone off the lists of suspects and of unsettled groups."""
    database, leases, settings = now.worker.database, now.worker.leases, now.worker.settings
    ranges = shard_ranges(settings.shards, settings.shard_code_upper_limit)
    for shard_range in leases.with_groups(ranges):
        if suspects := leases.suspects.of(shard_range):
            leases.suspects.clear(shard_range, set(suspects) - database.read(loading.there, suspects))
        if unsettled := leases.unsettled.of([shard_range]):
            there = database.read(loading.there, list(unsettled))
            leases.unsettled.keep(shard_range, {}, unsettled.keys() - there)
