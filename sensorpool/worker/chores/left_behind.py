"""What dead processes left to be told is told, and queues that they left behind are dropped.

Half a round's time for results; callbacks go on by themselves, a hundred at once; listeners are one question.
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
        log.warning("listeners were not looked after", error=str(error))


def send_callbacks(now: Round) -> None:
    """Have callbacks that wait sent."""
    now.worker.outbox.send_waiting_callbacks()


def publish(now: Round) -> None:
    """Publish results whose process died, or whose broker was away."""
    now.done.published += now.worker.outbox.send_left_behind(now.worker.settings.rescue_interval / 2)
