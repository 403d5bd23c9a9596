"""Faults 25-28: messages that come twice, not at all, out of order, or far too late. None leads to more pokes."""

import random

import pytest
from celery import Celery

from harness.until import until
from sensorpool.publish import wire
from sensorpool.service.app import make_app
from tests.faults.stand import Stand
from tests.faults.trial import Trial, extra


@pytest.fixture
def sender(stand: Stand) -> Celery:
    """Sends jobs to the workers, as beat does."""
    return make_app(stand.service.settings)


def send(sender: Celery, stand: Stand, times: int = 1, **options: object) -> None:
    """Send the job of each range so many times."""
    for shard_range in stand.service.pool.ranges * times:
        message = wire.shard_message(shard_range) | {"kwargs": {"tick": 1}} | options
        sender.send_task(wire.POKE_SHARD, **message)


def assert_not_early(trial: Trial) -> None:
    """No group was poked more than once an interval."""
    assert trial.extra_pokes() <= 0


@pytest.mark.parametrize(
    ("times", "found"),
    [
        ([0, 2, 4, 6], 0),
        ([0, 3.1, 4, 6], 0),  # one is late
        ([0, 2, 2.5, 4], 1),  # one too many
        ([0, 1, 2, 3, 4, 5], 2),  # each twice
    ],
)
def test_extra_pokes_are_found(times: list[float], found: int) -> None:
    assert extra(times, 2) == found


def test_repeated(stand: Stand, sender: Celery) -> None:
    trial = stand.trial("25 messages repeated (30 times each)")
    with trial.fault():
        for _ in range(4):
            send(sender, stand, times=10)
            trial.wait_for_pokes(1)
    trial.end()
    assert_not_early(trial)


def test_lost(stand: Stand, sender: Celery) -> None:
    trial = stand.trial("26 messages lost (the queue purged)")
    with trial.fault():
        purged = 0
        with sender.connection_for_write() as connection:
            while purged < 10:
                purged += connection.default_channel.queue_purge(wire.QUEUE) or 0
    trial.end()


def test_out_of_order(stand: Stand, sender: Celery, rng: random.Random) -> None:
    trial = stand.trial("27 messages out of order")
    with trial.fault():
        for _ in range(40):
            shard_range = rng.choice(stand.service.pool.ranges)
            tick = rng.randrange(2**31)
            sender.send_task(wire.POKE_SHARD, **(wire.shard_message(shard_range) | {"kwargs": {"tick": tick}}))
        trial.wait_for_pokes(3)
    trial.end()
    assert_not_early(trial)


@pytest.mark.parametrize("expires", [-3_600.0, None])
def test_an_hour_late(stand: Stand, sender: Celery, expires: float | None) -> None:
    """An expired message is dropped; a message without an expiry is one more look."""
    trial = stand.trial("28 messages an hour late")
    expired = stand.service.logs().count("Discarding revoked task")
    with trial.fault():
        for _ in range(3):
            send(sender, stand, times=5, expires=expires)
            trial.wait_for_pokes(1)
        if expires is not None:
            sent = 3 * 5 * len(stand.service.pool.ranges)
            until("the drop of all", lambda: stand.service.logs().count("Discarding revoked task") >= expired + sent)
    trial.end()
    assert_not_early(trial)
