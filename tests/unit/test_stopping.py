"""A signal that has arrived is heard by every thread that asks, before Python has run its handler."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

from sensorpool.service.runtime import Stopping

ROUNDS = 50


def test_a_signal_that_has_arrived_is_heard() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    heard = []
    try:
        with ThreadPoolExecutor(1) as other:
            for _ in range(ROUNDS):
                stopping, waits = Stopping(), threading.Event()
                signal.signal(signal.SIGUSR1, lambda *_, each=stopping: each.set())  # type: ignore[misc]

                def ask(each: Stopping = stopping, waits: threading.Event = waits) -> tuple[bool, bool]:
                    waits.wait()
                    quiet = each.is_set()
                    os.kill(os.getpid(), signal.SIGUSR1)
                    return quiet, each.is_set()

                answer = other.submit(ask)
                stopping.wait(0.001)
                waits.set()
                assert stopping.wait(10)
                heard.append(answer.result())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == [(False, True)] * ROUNDS


def test_nothing_is_asked_of_a_main_thread_that_does_not_wait() -> None:
    stopping = Stopping()
    with ThreadPoolExecutor(1) as other:
        assert not other.submit(stopping.is_set).result(0.5)
        stopping.set()
        assert other.submit(stopping.is_set).result(0.5)


def test_the_main_thread_waits_no_longer_than_asked() -> None:
    stopping = Stopping()
    with ThreadPoolExecutor(1) as other:
        assert not stopping.wait(0.001)
        stopping.set()
        assert stopping.wait(10)
        assert other.submit(stopping.is_set).result(0.5)
