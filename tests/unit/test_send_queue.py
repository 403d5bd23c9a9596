"""A send queue: it sends its items in order, refuses an item at once, and ends in time."""

import threading
import time

from sensorpool.errors import Refused, Unreachable
from sensorpool.publish.send_queue import SendQueue


def test_what_is_put_is_done_in_order() -> None:
    queue, done = SendQueue("test"), list[int]()
    tickets = [queue.put(lambda number=number: done.append(number)) for number in range(100)]
    assert tickets[-1] is not None
    assert tickets[-1].wait(5)
    assert done == list(range(100))
    queue.stop(5)
    assert queue.join(5)


def test_a_road_that_is_full_takes_no_more() -> None:
    queue, go = SendQueue("test", items=2, limit=100), threading.Event()
    held = queue.put(lambda: go.wait(5), 10)
    assert held is not None
    while queue.put(lambda: None, 91) is not None:  # until the first item is in hand, either result is right
        raise AssertionError("91 and 10 are more than 100")
    assert queue.put(lambda: None, 90) is not None
    assert queue.put(lambda: None, 1) is None
    go.set()
    assert held.wait(5)
    last = None
    while last is None:  # the weight of an item counts until it is sent
        last = queue.put(lambda: None, 100)
        time.sleep(0.001)
    queue.stop(5)
    assert queue.join(5)
    assert last.wait(0)


def test_a_broker_that_is_away_is_not_waited_for_by_those_behind() -> None:
    queue, tried, go = SendQueue("test"), list[str](), threading.Event()

    def away() -> None:
        go.wait(5)
        tried.append("first")
        raise Unreachable("away")

    first = queue.put(away)
    behind = queue.put(lambda: tried.append("behind"), 10)
    assert first is not None
    assert behind is not None
    go.set()
    assert first.wait(5)
    assert behind.wait(5), "it is over, though it did not go"
    assert tried == ["first"]
    assert queue.put(lambda: None) is None, "it pauses"
    queue.stop(5)
    assert queue.join(5)


def test_what_is_refused_stops_no_other() -> None:
    queue, done = SendQueue("test"), list[int]()

    def refused(error: Exception) -> None:
        raise error

    for error in (Refused("no"), ValueError("odd")):
        assert queue.put(lambda error=error: refused(error)) is not None
    last = queue.put(lambda: done.append(1))
    assert last is not None
    assert last.wait(5)
    assert done == [1]
    queue.stop(5)
    assert queue.join(5)


def test_it_ends_within_its_bound_though_what_is_in_hand_hangs() -> None:
    queue, go, done = SendQueue("test"), threading.Event(), list[int]()
    assert queue.put(go.wait) is not None
    left = queue.put(lambda: done.append(1))
    began = time.monotonic()
    queue.stop(0.1)
    assert not queue.join(0.1)
    assert time.monotonic() - began < 5
    assert queue.put(lambda: None) is None
    go.set()
    assert queue.join(5)
    assert left is not None
    assert left.wait(0)
    assert done == [], "its time was over"


def test_its_thread_ends_when_nothing_comes_and_starts_again() -> None:
    queue = SendQueue("idle", idle=0.01)
    for _ in range(3):
        ticket = queue.put(lambda: None)
        assert ticket is not None
        assert ticket.wait(5)
        deadline = time.monotonic() + 5
        while any(thread.name == "sensorpool-idle" for thread in threading.enumerate()):
            assert time.monotonic() < deadline
            time.sleep(0.005)
    queue.stop(1)
    assert queue.join(1)
