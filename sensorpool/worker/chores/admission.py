"""Looks again at what registrations are refused for: conditions in quarantine, and DAGs over their quota.

Three statements a round, however many there are. The count for the quotas reads all instances, also those that have
ended, where more wait than one DAG may have. So the longer it takes, the longer it rests: in all processes, by a key in
Redis.
"""

import time

from sensorpool.instrumentation.logs import logger
from sensorpool.store import admission
from sensorpool.worker.chores.round import Round

_COUNTED = 20_000  # instances a second, over all the time: of a million, the count rests for 50 seconds
_LONGEST_REST = 60  # seconds, by that; and after a count that failed
_SLOW = 1.0  # seconds; a count that takes longer takes a twentieth of the time
_SHARE = 20

log = logger(__name__)


def look_again(now: Round) -> None:
    """Let conditions out after the retention in quarantine; note the DAGs that have too many sensors."""
    database, settings = now.worker.database, now.worker.settings
    at = database.read(database.now)
    now.done.let_out = database.run(admission.prune, at - round(settings.retention * 1000))
    store = now.worker.leases.store
    rests = store.pool_key(f"quota_{settings.dag_quota}_rests")
    if store.call(store.client.pttl, rests) > 0:
        return
    store.call(store.client.set, rests, "1", ex=_LONGEST_REST)  # should the count fail, or its process be ended
    began = time.monotonic()
    over, waiting = database.run(admission.look_at_quotas, settings.dag_quota, at)
    took, rest = time.monotonic() - began, min(waiting // _COUNTED, _LONGEST_REST)
    if took >= _SLOW:
        rest = max(rest, round(_SHARE * took))
    if rest:
        store.call(store.client.set, rests, "1", ex=rest)
    else:
        store.call(store.client.delete, rests)
    for dag_id, sensing in over.items():
        log.warning("a DAG is over its quota; its further sensors are refused", dag_id=dag_id, sensing=sensing)
