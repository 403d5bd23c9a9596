"""The series to which the condition of a task belongs: the same condition in the runs before and after its own."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sensorpool.airflow.task.run_dates import without_dates
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line

# the dates of a run, the one first from which others are counted: a run by hand may have no logical date
_DATES = ("logical_date", "data_interval_start", "data_interval_end")
_LESSER = "run_after"

log = logger(__name__)


def series_of(poke_context: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """Return the logical date and the family of a condition: arguments of a `Registration`.

    :param poke_context: JSON values: what is the same in each run, but for its dates.
    :param context: the template context of its run.
    """
    logical_date = context.get("logical_date")
    try:
        dates = {name: when for name in _DATES if isinstance(when := context.get(name), datetime)}
        if not dates and isinstance(when := getattr(context.get("dag_run"), _LESSER, None), datetime):
            dates = {_LESSER: when}
        family = without_dates(poke_context, dates) if dates else None
    except Exception as error:  # a series is for people: no sensor keeps its slot for it
        log.warning("the series of a condition is not known", error=one_line(error))
        family = None
    return {"logical_date": logical_date, "family": family}
