"""Sends the results and callbacks that dead processes left unsent, and drops the queues that they left behind.

Results take half a round at most; callbacks go on by themselves, a hundred at once; listeners take one question.
Rescuers of other packages are entry points of the group ``sensorpool.rescuers``. Each bounds itself, and one that fails
costs no other rescuer its turn.
"""

from sensorpool.config import extensions
from sensorpool.errors import Unreachable
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.worker.chores.round import Round

RESCUERS = "sensorpool.rescuers"  # functions that take a round, and return what they did by name

log = logger(__name__)


def drop_listeners(now: Round) -> None:
    """Drop the queues of listeners that are gone."""
    try:
        now.done.listeners = now.publisher.drop_abandoned_listeners()
    except Unreachable as error:
        log.warning("the queues of listeners were not checked", error=str(error))


def send_callbacks(now: Round) -> None:
    """Have the waiting callbacks sent."""
    now.outbox.send_waiting_callbacks()


def publish(now: Round) -> None:
    """Publish results that were left behind because their process died, or the broker was away."""
    now.done.published += now.outbox.send_left_behind(now.settings.rescue_interval / 2)


def call_rescuers(now: Round) -> None:
    """Have every rescuer of another package do its round."""
    for name, rescuer in extensions.load(RESCUERS).items():
        try:
            now.done.more |= rescuer(now)
        except Exception as error:
            log.warning("a rescuer failed", rescuer=name, error=one_line(error))
