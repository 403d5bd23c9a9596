"""Callbacks that wait are sent again, whatever became of the last attempt."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from harness.until import until
from sensorpool.config.settings import Settings
from sensorpool.errors import Unreachable
from sensorpool.publish import outbox as outbox_module
from sensorpool.publish.outbox import Outbox


class Waiting:
    """Stands for the callbacks that wait in the database: some rounds of them."""

    def __init__(self) -> None:
        self.rounds = 0
        self.sent = 0
        self.away = False
        self.go = threading.Event()

    def send_some(self) -> bool:
        if self.away:
            raise Unreachable("no broker")
        self.sent += 1
        self.rounds -= 1
        return self.rounds > 0

    def send(self, _: Any) -> None:
        assert self.go.wait(10)
        raise Unreachable("no broker")

    def close(self) -> None: ...


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


@pytest.fixture
def outbox(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outbox]:
    monkeypatch.setattr(outbox_module, "WaitingCallbacks", lambda *_: waiting)
    monkeypatch.setattr("sensorpool.publish.send_queue.PAUSE", 0.0)
    database: Any = SimpleNamespace()
    publisher: Any = SimpleNamespace(close=lambda: None)
    made = Outbox(Settings.load(), database, publisher)
    yield made
    waiting.go.set()
    made.close()


def test_a_round_that_the_queue_leaves_is_made_again(outbox: Outbox, waiting: Waiting) -> None:
    assert outbox._callback_queue.put(lambda: waiting.send(None)) is not None
    outbox.send_waiting_callbacks()  # behind a message whose broker does not answer
    left = outbox._catching_up
    assert left is not None
    waiting.go.set()
    assert left.wait(10)
    assert waiting.sent == 0
    until("another round", lambda: outbox.send_waiting_callbacks() or waiting.sent == 1, every=0.01)


def test_a_round_whose_broker_is_away_is_made_again(outbox: Outbox, waiting: Waiting) -> None:
    waiting.away = True
    outbox.send_waiting_callbacks()
    failed = outbox._catching_up
    assert failed is not None
    assert failed.wait(10)
    waiting.away = False
    until("another round", lambda: outbox.send_waiting_callbacks() or waiting.sent == 1, every=0.01)


def test_a_round_goes_on_until_none_wait_and_is_not_begun_twice(outbox: Outbox, waiting: Waiting) -> None:
    waiting.rounds = 5
    held = threading.Event()
    assert outbox._callback_queue.put(lambda: held.wait(10)) is not None
    for _ in range(3):
        outbox.send_waiting_callbacks()
    held.set()
    until("all to be sent", lambda: waiting.sent == 5, every=0.01)
    last = outbox._catching_up
    assert last is not None
    assert last.wait(10)
    assert waiting.sent == 5


def test_a_round_that_is_cut_off_between_two_parts_is_made_again(outbox: Outbox, waiting: Waiting) -> None:
    """The rest of a round stands behind messages of new flushes, one of which fails."""
    waiting.rounds = 2
    first = threading.Event()
    assert outbox._callback_queue.put(lambda: first.wait(10)) is not None
    outbox.send_waiting_callbacks()
    assert outbox._callback_queue.put(lambda: waiting.send(None)) is not None
    first.set()
    until("the first part", lambda: waiting.sent == 1, every=0.01)
    waiting.go.set()
    until("the second part", lambda: outbox.send_waiting_callbacks() or waiting.sent == 2, every=0.01)
