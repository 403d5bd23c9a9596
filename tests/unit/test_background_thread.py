"""A thread with an owner: it starts when there is work, ends when it is stopped, and starts anew after a fork."""

import os
import threading
from collections.abc import Callable, Iterator

import pytest

from harness.until import until
from sensorpool.instrumentation.background import BackgroundThread

NAME = "test-background"


def running() -> int:
    """Return how many threads of these tests run."""
    return sum(thread.name == NAME for thread in threading.enumerate())


@pytest.fixture
def made() -> Iterator[Callable[[Callable[[BackgroundThread], None]], BackgroundThread]]:
    """Makes threads, and stops them after the test."""
    threads: list[BackgroundThread] = []

    def make(work: Callable[[BackgroundThread], None]) -> BackgroundThread:
        thread = BackgroundThread(NAME, lambda: work(thread))
        threads.append(thread)
        return thread

    yield make
    for thread in threads:
        assert thread.close(30)


def waits(thread: BackgroundThread) -> None:
    """Work until the owner stops the thread."""
    while not thread.wait(60):
        pass


def test_it_starts_once_and_ends_when_it_is_closed(made: Callable[..., BackgroundThread]) -> None:
    thread = made(waits)
    assert not thread.is_alive
    assert running() == 0
    thread.start()
    thread.start()
    assert thread.is_alive
    assert running() == 1
    assert thread.close(30)
    assert thread.is_stopping
    assert running() == 0


def test_it_does_not_start_once_it_is_stopped(made: Callable[..., BackgroundThread]) -> None:
    thread = made(waits)
    thread.stop()
    thread.start()
    assert not thread.is_alive
    assert thread.join(0)


def test_one_that_retires_starts_again_though_the_thread_before_has_not_ended_yet(
    made: Callable[..., BackgroundThread],
) -> None:
    gate, retired, starts = threading.Event(), threading.Event(), list[int]()

    def work(thread: BackgroundThread) -> None:
        starts.append(threading.get_ident())
        if len(starts) == 1:
            thread.retire()
            retired.set()
            gate.wait(60)
        else:
            waits(thread)

    thread = made(work)
    thread.start()
    assert retired.wait(30)
    assert not thread.is_alive
    thread.start()
    until("that another thread works", lambda: len(starts) == 2)
    assert thread.is_alive
    gate.set()


def test_a_join_has_a_bound(made: Callable[..., BackgroundThread]) -> None:
    gate = threading.Event()
    thread = made(lambda _: bool(gate.wait(60)))
    thread.start()
    assert not thread.close(0.01)
    gate.set()
    assert thread.join(30)


def test_it_may_close_itself(made: Callable[..., BackgroundThread]) -> None:
    closed = list[bool]()
    thread = made(lambda thread: closed.append(thread.close(60)))
    thread.start()
    until("that it has closed itself", lambda: closed)
    assert closed == [True]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork_it_is_the_parents_and_starts_anew(made: Callable[..., BackgroundThread]) -> None:
    thread = made(waits)
    thread.start()
    pid = os.fork()
    if not pid:
        was_alive = thread.is_alive
        thread.start()
        os._exit(0 if not was_alive and thread.is_alive and thread.close(30) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert thread.is_alive
