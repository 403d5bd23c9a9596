"""The triggerer's supervisor reads all that its triggers have written, in a round."""

import selectors
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from airflow.jobs import triggerer_job_runner
from airflow.jobs.triggerer_job_runner import TriggerRunnerSupervisor
from airflow.sdk.execution_time.supervisor import make_buffered_socket_reader

from sensorpool.airflow import policy
from sensorpool.airflow.triggerer import supervisor_reading

LINES = 1_000
LINE = b"x" * 100 + b"\n"


class Alive:
    """A process that has not ended."""

    TimeoutExpired = psutil.TimeoutExpired  # Airflow 3.3 asks the process for it

    def wait(self, timeout: float) -> int:
        raise psutil.TimeoutExpired(timeout)


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's supervisor as it is: an earlier test may have had it patched."""
    own = getattr(TriggerRunnerSupervisor, supervisor_reading._PATCHED, TriggerRunnerSupervisor._service_subprocess)
    monkeypatch.setattr(TriggerRunnerSupervisor, "_service_subprocess", own)
    monkeypatch.delattr(TriggerRunnerSupervisor, supervisor_reading._PATCHED, raising=False)


@pytest.fixture
def pipe(native: None) -> Iterator[tuple[Any, socket.socket, list[bytes]]]:
    """A supervisor, the socket into which its triggers write, and the lines that it has read."""
    supervisor: Any = TriggerRunnerSupervisor.__new__(TriggerRunnerSupervisor)
    supervisor._exit_code, supervisor._process, supervisor.selector = None, Alive(), selectors.DefaultSelector()
    read: list[bytes] = []

    def lines() -> Any:
        while True:
            read.append(bytes((yield)))

    writes, reads = socket.socketpair()
    with writes, reads, supervisor.selector:
        handler = make_buffered_socket_reader(lines(), on_close=lambda _: None)
        supervisor.selector.register(reads, selectors.EVENT_READ, handler)
        yield supervisor, writes, read


def test_one_round_reads_all_lines(pipe: tuple[Any, socket.socket, list[bytes]]) -> None:
    supervisor, writes, read = pipe
    writes.sendall(LINE * LINES)
    supervisor._service_subprocess(1)
    assert len(read) < LINES / 10  # so little Airflow reads by itself
    policy._patch_triggerer(triggerer_job_runner)
    assert supervisor._service_subprocess(1) is None
    assert read == [LINE] * LINES


def test_triggers_that_write_without_end_do_not_hold_a_round_up(
    pipe: tuple[Any, socket.socket, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, writes, read = pipe
    monkeypatch.setattr(supervisor_reading, "_SPAN", 0.05)
    policy._patch_triggerer(triggerer_job_runner)
    monkeypatch.setattr(
        supervisor.selector, "select", lambda timeout=None: (writes.sendall(LINE), _ready(supervisor))[1]
    )
    began = time.monotonic()
    supervisor._service_subprocess(1)
    assert len(read) > 1
    assert time.monotonic() - began < 30


def _ready(supervisor: Any) -> list[Any]:
    return [(key, selectors.EVENT_READ) for key in supervisor.selector.get_map().values()]


def test_the_end_of_the_runner_ends_the_reading(pipe: tuple[Any, socket.socket, list[bytes]]) -> None:
    supervisor, writes, _ = pipe
    policy._patch_triggerer(triggerer_job_runner)
    writes.sendall(LINE * LINES)
    supervisor._exit_code = -9
    assert supervisor._service_subprocess(1) == -9


def test_a_supervisor_of_another_shape_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Other:
        def _service_subprocess(self, patience: float) -> None:
            """Take another argument."""

    own = Other._service_subprocess
    supervisor_reading.install(SimpleNamespace(TriggerRunnerSupervisor=Other))
    assert Other._service_subprocess is own
    assert "reads few log lines a round" in caplog.text
