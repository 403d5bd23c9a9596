"""Sends the results and callbacks that dead processes left unsent, and drops the queues that they left behind.

Results take half a round at most; callbacks go on by themselves, a hundred at once; listeners take one question.
"""

from sensorpool.errors import Unreachable
from sensorpool.instrumentation.logs import logger
from sensorpool.worker.chores.round import Round

log = logger(__name__)


def drop_listeners(now: Round) -> None:
    """Drop the queues of listeners that are gone."""
    try:
        now.done.listeners = now.worker.publisher.drop_abandoned_listeners()
    except Unreachable as error:
        log.warning("the queues of listeners were not checked", error=str(error))


def send_callbacks(now: Round) -> None:
    """Have the waiting callbacks sent."""
    now.worker.outbox.send_waiting_callbacks()


def publish(now: Round) -> None:
    """Publish results that were left behind because their process died, or the broker was away."""
    now.done.published += now.worker.outbox.send_left_behind(now.worker.settings.rescue_interval / 2)
