"""What Airflow's database tells beside the pool: runs that an ExternalTaskSensor waits for, and room in triggerers."""

import datetime as dt
from typing import Any

from airflow.configuration import conf
from airflow.jobs.job import Job
from airflow.models.trigger import Trigger
from airflow.utils.session import create_session
from sqlalchemy import case, func, select

from sensorpool.airflow.ui import external_runs
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.web.access import Reader, Surroundings

_TRIGGERERS = "TriggererJob"  # as Airflow names their jobs

log = logger(__name__)


class AirflowAround(Surroundings):
    """Tells what Airflow's own database knows. What cannot be read is logged, and not told."""

    def sentences(self, shown: dict[str, Any], reader: Reader) -> dict[str, str]:
        """Return what is known of the runs that an ExternalTaskSensor waits for."""
        context = shown["poke_context"]
        if not external_runs.is_of_external_task(context):
            return {}
        try:
            with create_session() as session:
                return {"external runs": external_runs.told(context, reader, session)}
        except Exception as error:  # its database is away, or the row was edited
            log.warning("the runs of another DAG cannot be read", error=one_line(error))
            return {}

    def figures(self) -> dict[str, str]:
        """Return how much room the triggerers have: each task that waits in the pool takes a place there."""
        try:
            with create_session() as session:
                return {"room in the triggerers": _room(session)}
        except Exception as error:
            log.warning("the triggerers' room cannot be read", error=one_line(error))
            return {}


def _room(session: Any) -> str:
    """Return how many places are free, as far as all triggerers have the capacity that is configured here."""
    patience = dt.timedelta(seconds=conf.getfloat("triggerer", "triggerer_health_check_threshold"))
    is_alive = (
        Job.job_type == _TRIGGERERS,
        Job.end_date.is_(None),
        Job.latest_heartbeat > dt.datetime.now(dt.UTC) - patience,
    )
    alive = list(session.execute(select(Job.id).where(*is_alive)).scalars())
    if not alive:
        return "none: no triggerer is alive"
    placed = func.coalesce(func.sum(case((Trigger.triggerer_id.in_(alive), 1), else_=0)), 0)  # MySQL has no FILTER
    there, taken = session.execute(select(func.count(), placed).select_from(Trigger)).one()
    places = conf.getint("triggerer", "capacity") * len(alive)
    said = f"{max(0, places - taken):,} of {places:,}"
    return said if there == taken else f"{said}; {there - taken:,} wait for a place"
