"""How many pokes of a group have overrun their limit in a row: counted in Redis, beside the lease of its range."""

from collections.abc import Iterable

from sensorpool.config.settings import Settings
from sensorpool.errors import Unreachable
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.lease import Leases
from sensorpool.model.values import Report, ShardRange
from sensorpool.settle.overruns import is_overrun

log = logger(__name__)


def count(leases: Leases, settings: Settings, shard_range: ShardRange, reports: Iterable[Report]) -> dict[int, int]:
    """Return how many pokes in a row have overrun, with these, by group id; none where Redis does not say.

    A call for many counts for none of its groups.
    """
    hung = [report.group.id for report in reports if is_overrun(report, settings.poke_timeout) and not report.of_many]
    if not hung:
        return {}
    try:
        counts = leases.suspects.count_overruns(shard_range, hung)
    except Unreachable as error:
        log.warning("pokes that overran are not counted", error=str(error))
        return {}
    if at_it := sum(count == settings.overrun_limit for count in counts.values()):
        log.warning("pokes overran again and again: POKE_TIMEOUT may be too short for them", groups=at_it)
    return counts
