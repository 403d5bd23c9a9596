"""Signs of life: which process has shown one lately. No server is asked, and no slow import is made."""

import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.until import until
from sensorpool.instrumentation import alive
from tests.support.small_disk import FILL, on_a_small_disk


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield alive.folder()
    alive.end()


def put(folder: Path, name: str, text: str, process: int = 1) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.{process}.alive").write_text(text)


def test_who_begins_is_alive_until_it_ends(folder: Path) -> None:
    alive.begin("celery@a")
    assert alive.problems(1) == []
    assert folder.stat().st_mode & 0o777 == 0o700
    alive.end()
    assert alive.problems(1) == [f"no worker or beat shows signs of life in {folder}"]


def test_the_signs_on_a_full_disk_are_found(tmp_path: Path) -> None:
    script = f"""
import subprocess, sys
from sensorpool.instrumentation import alive
alive.begin("celery@a")
{FILL}
look = "from sensorpool.instrumentation import alive; print(alive.problems(60), alive.folder().parent)"
subprocess.run([sys.executable, "-c", look])
"""
    strike, said = on_a_small_disk(script, tmp_path).stdout.splitlines()
    assert strike == os.strerror(errno.ENOSPC)
    assert said == f"[] {tmp_path}"


@pytest.mark.parametrize("given", ["", "."])
def test_the_folder_without_one_in_the_environment(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("TMPDIR", given)
    assert alive.folder().parent == (Path.cwd() if given == "." else Path("/tmp"))


def test_a_folder_that_was_removed_is_made_again(folder: Path) -> None:
    alive.begin("celery@a")
    shutil.rmtree(folder)
    assert alive.problems(1) == [f"no worker or beat shows signs of life in {folder}"]
    alive.keep()
    until("a sign", lambda: alive.problems(60) == [])
    assert folder.stat().st_mode & 0o777 == 0o700


def test_no_sign_is_written_into_a_folder_that_took_its_place(folder: Path, tmp_path: Path) -> None:
    alive.begin("celery@a")
    sign = alive._ours
    assert sign is not None
    shutil.rmtree(folder)
    folder.symlink_to(tmp_path / "another")
    with pytest.raises(OSError, match=r"exists|another user"):
        sign.write()
    assert not (tmp_path / "another").exists()


def test_the_sign_of_one_that_is_gone_for_good_goes(folder: Path) -> None:
    put(folder, "celery@long-ago", str(time.monotonic() - 90_000))
    put(folder, "celery@killed", str(time.monotonic() - 100))
    alive.begin("celery@a")
    assert sorted(path.stem.partition(".")[0] for path in folder.glob("*.alive")) == ["celery@a", "celery@killed"]


@pytest.fixture
def another() -> Iterator[int]:
    """The id of a process that lives until the test ends it."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.kill()
    process.communicate()


def of_process(folder: Path, process: int, age: float) -> None:
    """Write the sign of another process with our name."""
    put(folder, "celery@a", str(time.monotonic() - age), process)


def test_two_processes_of_one_name_have_a_sign_each(folder: Path, tmp_path: Path, another: int) -> None:
    of_process(folder, another, age=75)
    alive.begin("celery@a")
    assert alive.problems(60) == [f"celery@a (process {another}) has shown no sign of life for 75 s"]
    ours, theirs = tmp_path / "ours.pid", tmp_path / "theirs.pid"
    ours.write_text(f"{os.getpid()}\n")
    theirs.write_text(f"{another}\n")
    assert alive.problems(60, ours) == []
    assert alive.problems(60, theirs) == alive.problems(60)
    of_process(folder, another, age=1)
    assert alive.problems(60, theirs) == []
    alive.end()
    assert alive.problems(60, theirs) == alive.problems(60) == [], "another's is left where it is"
    [said] = alive.problems(60, ours)
    assert said.startswith(f"process {os.getpid()} of {ours} does not show signs of life")


def test_who_starts_again_takes_the_sign_of_its_dead_predecessor_away(folder: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    of_process(folder, process.pid, age=5)
    put(folder, "celery@b", str(time.monotonic() - 75), process.pid)
    assert alive.problems(80) == []
    alive.begin("celery@a")
    assert alive.problems(60) == [f"celery@b (process {process.pid}) has shown no sign of life for 75 s"]
    assert len(list(folder.glob("*.alive"))) == 2


def test_a_pid_file_that_is_none_is_said(folder: Path, tmp_path: Path) -> None:
    alive.begin("celery@a")
    [said] = alive.problems(60, tmp_path / "none.pid")
    assert said.endswith(
        "none.pid cannot be read: No such file or directory: does its worker or beat run, with that --pidfile?"
    )
    (tmp_path / "odd.pid").write_text("celery")
    [said] = alive.problems(60, tmp_path / "odd.pid")
    assert "odd.pid holds no process's number" in said


def test_signs_come_while_the_main_loop_comes_round(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alive, "_EVERY", 0.01)
    alive.begin("celery@a")
    assert alive._ours is not None
    alive._ours.path.write_text("0")
    alive.keep()
    until("a sign", lambda: alive.problems(60) == [], 5)
    alive._ours.round -= 2 * alive._ROUND  # it is stuck
    until("no sign any more", lambda: alive.problems(0.5), 5)
    alive.come_round()
    until("a sign again", lambda: alive.problems(0.5) == [], 5)


def call_in(other: ThreadPoolExecutor, function: Callable[[], bool]) -> bool:
    """Call a function on another thread."""
    return other.submit(function).result()


def test_who_waits_for_the_broker_gets_on(folder: Path) -> None:
    alive.begin("celery@a")
    sign = alive._ours
    assert sign is not None
    sign.round -= 2 * alive._ROUND
    assert not sign.gets_on()
    with ThreadPoolExecutor(1) as other:

        def called_by(*modules: str) -> bool:
            """Return what another thread finds, while this one waits below functions of these modules."""
            names: dict[str, Any] = {"caller": partial(call_in, other, sign.gets_on)}
            for module in reversed(modules):
                names = {"__name__": module, "call": names["caller"]}
                exec("def caller(): return call()", names)
            return bool(names["caller"]())

        assert called_by("celery.worker", "kombu.transport.redis", "redis.connection")
        assert called_by("celery.worker", "kombu.transport.redis", "redis.connection", "azure.identity")
        assert not called_by("celery.worker", "acme")
        assert not called_by("celery.worker", "kombu.transport.redis", "celery.worker.strategy"), "it took a message"
        assert not called_by("celery.worker", "kombu.transport.redis", "logging"), "and logs it"
    alive.come_round(until=1e9)
    assert sign.gets_on()


def test_each_that_is_silent_is_named(folder: Path) -> None:
    put(folder, "beat@a", str(time.monotonic()))
    put(folder, "celery@a", str(time.monotonic() - 75))
    assert alive.problems(60) == ["celery@a (process 1) has shown no sign of life for 75 s"]
    assert alive.problems(80) == []


@pytest.mark.parametrize(
    "text", ["", "x", "1e400", "nan", pytest.param(str(time.monotonic() + 3600), id="an hour ahead")]
)
def test_what_is_no_time_of_now_is_no_sign(folder: Path, text: str) -> None:
    put(folder, "celery@a", text)
    assert alive.problems(60) == ["celery@a (process 1) has shown no sign of life since the host started"]


def test_a_fork_leaves_its_parents_sign_alone(folder: Path) -> None:
    alive.begin("celery@a")
    sign = alive._ours
    assert sign is not None
    child = os.fork()
    if child == 0:
        sign.take_away()
        os._exit(0)
    os.waitpid(child, 0)
    assert sign.path.exists()


def test_a_folder_that_another_made_is_not_used(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="belongs to another user"):
        alive.begin("celery@a")
    alive.keep()  # and goes on without
    alive.come_round()


def test_the_probe_imports_next_to_nothing(tmp_path: Path) -> None:
    code = "import sys; from sensorpool.cli.main import main; main(['health', '--self'], standalone_mode=False)\n"
    watched = "import atexit, sys; atexit.register(lambda: print(sorted({m.partition('.')[0] for m in sys.modules})))\n"
    done = subprocess.run(
        [sys.executable, "-c", watched + code],
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 1, done.stderr
    assert "no worker or beat" in done.stdout
    for heavy in ("celery", "kombu", "sqlalchemy", "redis", "pydantic", "rich", "alembic"):
        assert f"'{heavy}'" not in done.stdout


def test_a_second_signal_does_not_wait_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    alive.begin("beat")
    sign, ends = alive._ours, []
    assert sign is not None
    take_away = sign.take_away

    def interrupted() -> None:
        ends.append("first")
        alive.end()  # as the handler of a signal that comes now
        take_away()

    monkeypatch.setattr(sign, "take_away", interrupted)
    alive.end()
    assert ends == ["first"]
