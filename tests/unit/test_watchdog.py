"""The watchdog: which thread stands still, and which only waits. (`test_crashes` freezes whole processes.)"""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import redis

from harness.until import until
from sensorpool.poke import watchdog
from sensorpool.poke.watchdog import Limits, Watchdog, Watched, limits

FAR = Limits(frozen=600, standing=600)


class Here:
    """A watched thread."""

    def __init__(self, act: Callable[[Watched], object]) -> None:
        self.watched = Watched()
        self.looks = 0
        self._act = act
        self._begun = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        assert self._begun.wait(30)

    def _run(self) -> None:
        self.watched.begin()
        self._begun.set()
        with suppress(redis.RedisError):  # the server goes with the test
            self._act(self.watched)

    def stands(self) -> bool:
        """Whether two looks find the thread at the same place."""
        before = self.watched.standing
        self.watched.look(1.0)
        return self.watched.standing > before

    def gets_on(self) -> bool:
        """Whether a look long after its last step finds that the thread does not stand."""
        self.watched.look(1.0)
        self.looks += 1
        return self.looks > 5 and self.watched.standing == 0


def called_from(module: str, act: Callable[[], object]) -> Callable[[Watched], object]:
    """Call a function from a function of a module."""
    found: dict[str, Any] = {"__name__": module, "act": act}
    exec("def call(watched):\n    return act()\n", found)
    return found["call"]  # type: ignore[no-any-return]


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def silent_server() -> Iterator[int]:
    """The port of a server that takes connections and never answers."""
    with ExitStack() as opened:
        server = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        yield server.getsockname()[1]


def ask(port: int) -> Callable[[], object]:
    client = redis.Redis(port=port, socket_timeout=60, socket_connect_timeout=60)
    return client.ping


def test_a_thread_that_waits_for_a_lock_stands_until_it_takes_a_step(gate: threading.Event) -> None:
    here = Here(called_from("sensorpool.worker.job", gate.wait))
    until("that it stands", here.stands)
    assert here.stands()
    here.watched.step()
    assert not here.stands()
    assert here.watched.standing == 0
    until("that it stands again", here.stands)
    here.watched.end()
    assert not here.stands()


def test_a_thread_that_waits_for_a_server_of_ours_does_not_stand(silent_server: int) -> None:
    here = Here(called_from("sensorpool.leases.lease", ask(silent_server)))
    until("that it gets on", here.gets_on)
    assert not any(here.stands() for _ in range(20))


def test_a_thread_that_waits_for_a_server_of_a_sensor_stands(silent_server: int) -> None:
    """A sensor that is destroyed on our thread uses the same driver, but not our time limits."""
    here = Here(lambda _: called_from("sensorpool.worker.job", lambda: ask(silent_server)())(Watched()))
    until("that it stands", here.stands)
    inner = called_from("their.hook", ask(silent_server))
    here = Here(called_from("sensorpool.worker.job", lambda: inner(Watched())))
    until("that it stands", here.stands)


def test_a_thread_that_waits_for_the_lock_of_the_log_stands_wherever_it_was_called_from() -> None:
    """Drivers log, too."""
    import logging

    lock = logging.Handler()
    with lock.lock:  # type: ignore[union-attr]
        here = Here(
            called_from("sensorpool.leases.lease", lambda: called_from("redis.connection", lock.acquire)(Watched()))
        )
        until("that it stands", here.stands)
        assert here.stands()


def test_a_thread_that_works_gets_on(gate: threading.Event) -> None:
    def work(_: Watched) -> None:
        while not gate.is_set():
            sum(range(10))
            len("a")

    here = Here(work)
    until("that it gets on", here.gets_on)


def test_the_watchdog_ends_a_process_in_which_a_watched_thread_stands(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "_EVERY", 0.01)
    monkeypatch.setattr(watchdog, "_AT_ONCE", 0.05)
    ended: list[float] = []
    dog = Watchdog(Limits(600, 0.05), enabled=True, end=ended.append)

    def job() -> None:
        dog.begin_job()
        gate.wait(60)
        dog.end_job()

    thread = threading.Thread(target=job, daemon=True)
    thread.start()
    until("that the process is ended", lambda: ended)
    gate.set()
    thread.join(30)
    assert not dog.is_on_guard


def test_the_watchdog_rests_once_nobody_is_watched_or_guarded() -> None:
    dog = Watchdog(FAR, enabled=True)
    dog.begin_job()
    with dog.watching():
        dog.guard()
        dog.end_job()
        assert dog.is_on_guard
    assert dog.is_on_guard
    dog.rest()
    assert not dog.is_on_guard


def test_a_watchdog_that_is_off_watches_nothing() -> None:
    dog = Watchdog(FAR, enabled=False)
    dog.begin_job()
    with dog.watching() as watched:
        watched.step()
    dog.end_job()
    assert not dog._thread.is_alive


def test_the_process_says_where_its_threads_stand_as_it_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from sensorpool.poke import watchdog; watchdog._end(7.0)"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "a thread has come no further for 7.0 s; its process is ended" in done.stderr
    assert "most recent call first" in done.stderr


def test_the_process_ends_though_its_last_words_are_not_read() -> None:
    """The full pipe of a log may be what its threads wait for."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    try:
        done = subprocess.run(
            [sys.executable, "-c", "from sensorpool.poke import watchdog; watchdog._end(7.0)"],
            stderr=writing,
            timeout=30,
        )
        assert done.returncode == 1
        os.set_blocking(reading, False)
        said = b""
        with suppress(BlockingIOError):
            while True:
                said += os.read(reading, 65_536)
        assert set(said) == {ord("x")}, "the pipe had room"
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(("poke_timeout", "standing"), [(1.0, 6.5), (10.0, 20.5)])
def test_a_process_stands_for_two_pokes_at_most(poke_timeout: float, standing: float) -> None:
    assert limits(poke_timeout) == (poke_timeout + 0.5, standing)
