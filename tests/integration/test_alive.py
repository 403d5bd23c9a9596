"""`health --self` of a real worker and beat: green in an outage of Redis, red if a process is frozen or dead."""

import fcntl
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.servers import RedisServer
from harness.service import Service
from harness.until import until
from sensorpool.store.migrate import upgrade

WITHIN = 10  # seconds: signs come every five


@pytest.fixture
def service(tmp_path: Path, redis_server: RedisServer, redis_url: str) -> Iterator[Service]:
    """A worker and a beat with signs of their own, on a Redis that may be stopped."""
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    upgrade(url)
    service = Service(tmp_path, url, redis_url)
    yield service
    service.stop()


def test_red_for_the_process_and_not_for_the_outage(service: Service, redis_server: RedisServer) -> None:
    def of_itself() -> tuple[int, str]:
        done = service.cli("health", "--self", "--within", str(WITHIN))
        return done.returncode, done.stdout

    assert of_itself()[0] == 1
    worker, beat = service.worker(concurrency=1), service.beat()
    until("the first ticks", service.is_ready)
    assert len(list(service.folder.glob("sensorpool-*/*.alive"))) == 2
    assert of_itself() == (0, "healthy\n")
    redis_server.pause()  # the worst outage: connections are open and nothing answers
    time.sleep(WITHIN + 1)
    assert of_itself() == (0, "healthy\n")
    worker.send_signal(signal.SIGSTOP)
    status, said = until("red for the frozen worker", lambda: (found := of_itself())[0] and found, every=0.5)
    assert (status, "has shown no sign of life" in said) == (1, True)
    assert "worker0@" in said
    assert "beat@" not in said
    worker.send_signal(signal.SIGCONT)
    until("green again", lambda: of_itself()[0] == 0, every=0.5)
    os.kill(beat.pid, signal.SIGTERM)
    beat.wait(30)
    assert of_itself() == (0, "healthy\n")  # a process that ended in good order
    assert not list(service.folder.glob("sensorpool-*/beat@*"))


def test_of_two_workers_of_one_name_each_probe_finds_its_own(service: Service) -> None:
    def probe(pidfile: Path) -> tuple[int, str]:
        done = service.cli("health", "--self", "--within", str(WITHIN), "--pidfile", str(pidfile))
        return done.returncode, done.stdout

    files = [service.folder / f"{number}.pid" for number in range(2)]
    frozen, _ = [service.worker("--hostname=same@%h", f"--pidfile={file}", concurrency=1) for file in files]
    until("both", lambda: all(file.exists() and probe(file)[0] == 0 for file in files), every=0.5)
    frozen.send_signal(signal.SIGSTOP)
    status, said = until("red for the frozen one", lambda: (found := probe(files[0]))[0] and found, every=0.5)
    assert status == 1
    assert f"(process {frozen.pid}) has shown no sign of life" in said
    assert probe(files[1]) == (0, "healthy\n")


@pytest.fixture
def unread() -> Iterator[tuple[int, threading.Event]]:
    """A small pipe for a log, and an event: once it is set, the log is not read any more."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    stopped, over = threading.Event(), threading.Event()

    def read() -> None:
        while not stopped.wait(0.01):
            if select.select([reading], [], [], 0)[0]:
                os.read(reading, 65_536)
        over.wait()

    reader = threading.Thread(target=read)
    reader.start()
    yield writing, stopped
    stopped.set()
    over.set()
    reader.join()
    os.close(reading)
    os.close(writing)


def test_red_for_a_worker_whose_log_is_not_read(service: Service, unread: tuple[int, threading.Event]) -> None:
    """A stopped reader of the log stops each child that logs each job; such a child ends, and its parent logs that."""
    log, stopped = unread
    process = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "sensorpool", "worker", "--concurrency=2", "--loglevel=DEBUG"],
        env=os.environ | service.environment,
        cwd=service.folder,
        stdout=log,
        stderr=log,
    )
    service.processes.append(process)
    service.beat()
    until("the first ticks", service.is_ready)
    own = f"(process {process.pid})"
    assert service.cli("health", "--self", "--within", str(WITHIN)).returncode == 0
    stopped.set()
    until("the log to be full", lambda: not select.select([], [log], [], 0)[1])
    # beat may be red, too, until it has started: a slow host takes its time
    until(
        "the worker alone to be red",
        lambda: (
            own in (said := service.cli("health", "--self", "--within", str(WITHIN)).stdout) and "beat@" not in said
        ),
        90,
    )
    assert process.poll() is None
