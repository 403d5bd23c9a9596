"""Adaptive intervals (the setting ``adaptive``): which due groups are passed over, as they never landed so early."""

from collections.abc import Container, Sequence

from sensorpool.errors import Unreachable
from sensorpool.instrumentation.logs import logger
from sensorpool.model.usual_landing import Series, earliest, is_left_out
from sensorpool.model.values import Milliseconds
from sensorpool.poke.unit import PokeUnit
from sensorpool.store import late_conditions
from sensorpool.store.database import Database
from sensorpool.store.late_conditions import UsualLandings

_AT_ONCE = 500  # groups, and families, that one load looks up

log = logger(__name__)


def sift(
    database: Database,
    usual_landings: UsualLandings,
    units: Sequence[PokeUnit],
    *,
    last: Milliseconds,
    now: Milliseconds,
    wanted: Container[int],
) -> list[PokeUnit]:
    """Return the due groups that are poked now. What is not known yet is poked as declared.

    :param last: the load of the range before this one.
    :param wanted: ids of groups that are poked in any case.
    """
    unknown = {unit.group.id: unit for unit in units if unit.series is None}
    try:
        if unknown:
            for row in database.read(late_conditions.of_groups, list(unknown)[:_AT_ONCE]):
                unknown[row.id].series = row.family, row.logical_date
        families = {unit.series[0]: None for unit in units if unit.series is not None}
        usual = usual_landings.of(families, now, _AT_ONCE)
    except Unreachable as error:
        log.info("when conditions usually land is not known; they are poked as declared", error=str(error))
        return list(units)

    return [unit for unit in units if unit.group.id in wanted or not _is_early(unit, usual, last, now)]


def _is_early(unit: PokeUnit, usual: dict[int, Series], last: Milliseconds, now: Milliseconds) -> bool:
    """Whether a group is passed over; never at its deadline."""
    group = unit.group
    if unit.series is None or (group.next_deadline is not None and now >= group.next_deadline):
        return False
    family, logical_date = unit.series
    first = earliest(usual.get(family, {}), logical_date, group.registered_at)
    return first is not None and is_left_out(last, now, group.poke_interval, group.phase, first)
