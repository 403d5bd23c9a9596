"""Looks again at what registrations are refused for: conditions in quarantine, and DAGs over their quota.

Three statements a round, however many there are.
"""

from sensorpool.instrumentation.logs import logger
from sensorpool.store import admission
from sensorpool.worker.chores.round import Round

log = logger(__name__)


def look_again(now: Round) -> None:
    """Let conditions out after the retention in quarantine; note the DAGs that have too many sensors."""
    database, settings = now.worker.database, now.worker.settings
    at = database.read(database.now)
    now.done.let_out = database.run(admission.prune, at - round(settings.retention * 1000))
    over = database.run(admission.look_at_quotas, settings.dag_quota, at)
    for dag_id, sensing in over.items():
        log.warning("a DAG is over its quota; its further sensors are refused", dag_id=dag_id, sensing=sensing)
