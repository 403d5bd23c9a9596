"""Rescuers of other packages: entry points of the group ``sensorpool.rescuers``.

Each bounds itself. One that fails costs no other rescuer its turn.
"""

from sensorpool.config import extensions
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.worker.chores.round import Round

RESCUERS = "sensorpool.rescuers"  # functions that take a worker, and return what they did by name

log = logger(__name__)


def rescue(now: Round) -> None:
    """Have every rescuer do its round."""
    for name, rescuer in extensions.load(RESCUERS).items():
        try:
            now.done.more |= rescuer(now.worker)
        except Exception as error:
            log.warning("a rescuer failed", rescuer=name, error=one_line(error))
