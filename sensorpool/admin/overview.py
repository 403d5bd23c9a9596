"""A pool at a glance, in four questions: is it alive, is it on time, what hurts, what is late."""

from contextlib import suppress
from typing import Any

from sensorpool.admin.conditions import Seen, failing, list_conditions
from sensorpool.admin.health import health
from sensorpool.admin.status import status
from sensorpool.client.pool_view import PoolView
from sensorpool.errors import SensorpoolError, Unreachable
from sensorpool.leases.range_state import MISSED
from sensorpool.store import conditions
from sensorpool.store.conditions import Order, Wanted

_LATEST = 10  # late conditions that are named


def overview(pool: PoolView, seen: Seen) -> dict[str, Any]:
    """Return the answers. A server that is away is a problem, and what is not known without it is None.

    :param seen: the DAGs whose waiters may be named; None: all.
    """
    found: dict[str, Any] = {"problems": [], "status": None, "failing": {}, "load": None}
    found |= {"lag_s": None, "late_ranges": None, "late": []}
    try:
        pool.workers()
    except Unreachable as error:  # each further question would wait as long for its answer
        return found | {"problems": [str(error)]}
    with suppress(SensorpoolError):
        found["load"] = pool.database.read(conditions.load)._asdict()
        wanted = Wanted(late=True)
        found["late"] = list_conditions(pool, wanted, Order.LATENESS, 0, _LATEST, outcome=None, seen=seen)["conditions"]
    try:
        found["status"] = seen_now = status(pool)
        found["problems"] = seen_now["problems"]
        found["failing"] = {name: dict(counts) for name, counts in sorted(failing(pool).items())}
    except SensorpoolError:
        return found | {"problems": health(pool)}
    lags = [each["lag_s"] for each in seen_now["ranges"] if each["lag_s"] is not None]
    tick = max([pool.settings.tick, *(each["tick"] for each in seen_now["workers"])])
    found["lag_s"] = max(lags, default=None)
    found["late_ranges"] = sum(lag > MISSED * tick for lag in lags) + len(seen_now["ranges"]) - len(lags)
    return found
