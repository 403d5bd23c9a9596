"""Resources that the pokes of a process share run out: for the poke that meets it, this is no answer."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sensorpool.config.defaults import INFRA_FAILURES
from sensorpool.errors import FailSensor, InfraFailure, SkipSensor
from sensorpool.model.states import Outcome
from sensorpool.poke import exhaustion
from sensorpool.poke.answer import Answers
from sensorpool.poke.exhaustion import Shortage
from sensorpool.poke.slots import Slots
from sensorpool.poke.thread_lane import ThreadLane
from tests.support.builders import drive, due_group, one
from tests.support.sensors import answering

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what is looked at is Linux's")

SHARED, ALONE = Answers(INFRA_FAILURES), Answers(INFRA_FAILURES, alone=True)
NO_THREAD = "can't start new thread"


def _no_process() -> BaseException:
    """Return the error of subprocess when no process can be made, with its traceback."""

    def refuse(*_: Any) -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    patch = pytest.MonkeyPatch()
    patch.setattr(subprocess, "_fork_exec", refuse)
    patch.setattr(subprocess, "_USE_POSIX_SPAWN", False)
    try:
        subprocess.run([sys.executable, "-c", ""], close_fds=True, check=False)
    except BlockingIOError as error:
        return error
    finally:
        patch.undo()
    raise AssertionError("it was made")


def _from(cause: BaseException) -> BaseException:
    """Return the error that a client library raises from it."""
    try:
        try:
            raise cause
        except BaseException as error:
            raise ValueError("connection refused") from error
    except ValueError as error:
        return error


@pytest.mark.parametrize(
    ("make", "alone"),
    [
        (lambda: OSError(errno.EMFILE, "files"), Outcome.POKE_ERROR),
        (lambda: _from(OSError(errno.EMFILE, "files")), Outcome.POKE_ERROR),
        (lambda: OSError(errno.ENFILE, "files"), Outcome.INFRA_FAILURE),
        (lambda: RuntimeError(NO_THREAD), Outcome.INFRA_FAILURE),
        (_no_process, Outcome.INFRA_FAILURE),
        (MemoryError, Outcome.CRASHED),
        (lambda: OSError(errno.ENOMEM, "memory"), Outcome.CRASHED),
        (lambda: _from(MemoryError()), Outcome.CRASHED),
    ],
)
def test_what_runs_out_beside_others_is_no_answer(
    make: Callable[[], BaseException], alone: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exhaustion, "_threads", lambda: 5)  # as in a child; this process has other tests' threads
    assert SHARED.of_exception(due_group(), 0.0, make()).outcome is Outcome.CRASHED
    assert ALONE.of_exception(due_group(), 0.0, make()).outcome is alone


def test_a_child_full_of_threads_is_the_pokes_doing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exhaustion, "_threads", lambda: 64)
    assert ALONE.of_exception(due_group(), 0.0, RuntimeError(NO_THREAD)).outcome is Outcome.POKE_ERROR


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (BlockingIOError(errno.EAGAIN, "a lock is taken"), Outcome.POKE_ERROR),
        (RuntimeError("no"), Outcome.POKE_ERROR),
        (FileNotFoundError(errno.ENOENT, "no"), Outcome.POKE_ERROR),
        (OSError(errno.ENOSPC, "the disk is full"), Outcome.POKE_ERROR),
        (InfraFailure("away"), Outcome.INFRA_FAILURE),
    ],
)
def test_other_errors_are_answers(error: BaseException, outcome: Outcome) -> None:
    assert SHARED.of_exception(due_group(), 0.0, error).outcome is outcome


@pytest.fixture
def no_file_left() -> Iterator[None]:
    """Let this process have as many open files as it may."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, len(os.listdir("/proc/self/fd")) + 32), hard))
    kept = []
    try:
        while True:
            try:
                kept.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        yield
    finally:
        for descriptor in kept:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_without_a_file_to_open_knows_no_error(no_file_left: None) -> None:
    for error in (ValueError("name or service not known"), InfraFailure("no route")):
        assert SHARED.of_exception(due_group(), 0.0, error).outcome is Outcome.CRASHED
    for error, outcome in ((FailSensor("no"), Outcome.FAIL), (SkipSensor("no"), Outcome.SKIP)):
        assert SHARED.of_exception(due_group(), 0.0, error).outcome is outcome
    assert Shortage(0).look() == "no file can be opened"


def test_files_near_their_limit_are_found_and_looked_for_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"/proc/self/fd": 700, "/proc/self/task": 4}
    looks: list[str] = []
    monkeypatch.setattr(exhaustion, "_listed", lambda folder: looks.append(folder) or counts[folder])
    monkeypatch.setattr(exhaustion, "_most_files", lambda: 1_000)
    shortage = Shortage(64)
    assert [shortage.look() for _ in range(3)] == [None] * 3
    assert looks == ["/proc/self/fd", "/proc/self/task"], "once"
    counts["/proc/self/fd"] = 751
    assert Shortage(64).look() == "751 files are open"
    counts |= {"/proc/self/fd": 3, "/proc/self/task": 64 + 513}
    assert Shortage(64).look() == "577 threads live"
    assert Shortage(65).look() is None
    monkeypatch.setattr(exhaustion, "_listed", lambda folder: None)
    assert Shortage(0).look() is None, "the system does not say"


def test_a_process_that_can_start_no_thread_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError(NO_THREAD)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert Shortage(10_000).look() == "no thread can be started"


class OddText(Exception):
    """An error whose text raises SystemExit."""

    def __str__(self) -> str:
        raise SystemExit("text")


class OddAttributes(Exception):
    """An error whose attributes raise another exception than AttributeError."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


class OddAttribute(Exception):
    """An error all of whose attributes raise."""

    def __getattribute__(self, name: str) -> Any:
        raise KeyError(name)


@pytest.mark.parametrize("kind", [OddText, OddAttributes, OddAttribute])
def test_an_exception_that_cannot_be_read_is_the_pokes_error(kind: type[Exception]) -> None:
    report = SHARED.of_exception(due_group(), 0.0, kind())
    assert report.outcome is Outcome.POKE_ERROR
    assert kind.__name__ in str(report.reason)


def test_what_cannot_be_read_at_all_takes_no_thread_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise SystemExit("nothing can be read")

    lane, slots = None, Slots(2)
    broken, well = one(1, answering.Lands), one(2, answering.Lands)
    monkeypatch.setattr(type(broken._tools.answers), "of_value", refuse)
    monkeypatch.setattr(type(broken._tools.answers), "of_exception", refuse)
    lane = ThreadLane(slots, 60.0)
    lane.put([broken])
    [report] = drive(lane, lambda seen: len(seen) == 1, "it is reported at once")
    assert report.outcome is Outcome.POKE_TIMEOUT
    monkeypatch.undo()
    lane.put([well])
    [report] = drive(lane, lambda seen: len(seen) == 1, "the lane goes on")
    assert report.outcome is Outcome.LANDED
