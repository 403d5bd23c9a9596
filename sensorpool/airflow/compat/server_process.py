"""A process of the pool, as one of Airflow's servers: with its database in reach, and with the pool's log."""

import logging
import os
from functools import cache
from typing import Any

import structlog

from sensorpool.instrumentation import logs

logger = logging.getLogger("sensorpool.airflow")
_CONTEXT = "_AIRFLOW_PROCESS_CONTEXT"


def become_server() -> None:
    """Make this process one of Airflow's servers, which read its database, and have Airflow's lines in the pool's log.

    For the Connections and Variables of pokes see `supervisor_requests.stand_in`.
    """
    os.environ.setdefault(_CONTEXT, "server")
    log_as_the_pool()


def log_as_the_pool() -> None:
    """Have Airflow's lines in the log of this process, one of the pool's."""
    if (level := logs.restore()) is not None:
        _log_by_structlog(level)


@cache
def _log_by_structlog(level: int) -> None:
    """Have Airflow log by structlog to the pool's log, with the levels of its lines.

    Airflow prints such lines, and Celery takes printed lines for warnings.
    """
    for_tasks = logging.getLogger("airflow.task")  # for the lines of sensors and hooks
    for_tasks.handlers.clear()  # they write the logs of tasks, which the pool has not
    for_tasks.setLevel(level)
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.PositionalArgumentsFormatter(), _as_record],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def _as_record(_: Any, __: str, event: dict[str, Any]) -> tuple[tuple[str, str], dict[str, Any]]:
    """Return an event of structlog as the arguments of a logger of the standard library."""
    special: dict[str, Any] = {
        name: event.pop(name) for name in ("exc_info", "stack_info", "stacklevel") if name in event
    }
    return ("%s", str(event.pop("event", ""))), {**special, "extra": {"fields": event}}
