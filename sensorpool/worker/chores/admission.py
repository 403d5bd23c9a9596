"""Looks again at what registrations are refused for: conditions in quarantine, and DAGs over their quota.

Three statements a round, however many there are. The count for the quotas reads all instances where more wait than one
DAG may have, so the more there are, the longer it rests: in all processes, by a key in Redis.
"""

from sensorpool.instrumentation.logs import logger
from sensorpool.store import admission
from sensorpool.worker.chores.round import Round

_COUNTED = 20_000  # instances a second, over all the time: of a million, the count rests for 50 seconds

log = logger(__name__)


def look_again(now: Round) -> None:
    """Let conditions out after the retention in quarantine; note the DAGs that have too many sensors."""
    database, settings = now.worker.database, now.worker.settings
    at = database.read(database.now)
    now.done.let_out = database.run(admission.prune, at - round(settings.retention * 1000))
    store = now.worker.leases.store
    rests = store.pool_key("quotas_rest")
    if store.call(store.client.exists, rests):
        return
    over, waiting = database.run(admission.look_at_quotas, settings.dag_quota, at)
    if rest := waiting // _COUNTED:
        store.call(store.client.set, rests, "1", ex=rest)
    for dag_id, sensing in over.items():
        log.warning("a DAG is over its quota; its further sensors are refused", dag_id=dag_id, sensing=sensing)
