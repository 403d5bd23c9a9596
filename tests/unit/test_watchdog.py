"""The watchdog, each time in a process of its own: it ends the process only if no thread runs while pokes go on."""

import subprocess
import sys

import pytest

FREEZE = "ctypes.PyDLL(None).usleep(1_500_000)"  # with the interpreter lock held
BUSY = "time.sleep(1.5)"


def run(*steps: str) -> "subprocess.CompletedProcess[str]":
    """Run steps with a watchdog whose limit of a poke is 0.1 s."""
    begin = "import ctypes, time; from sensorpool.poke.watchdog import Watchdog; dog = Watchdog(0.1, enabled=True)"
    code = "; ".join([begin, *steps, "import os; os._exit(0)"])
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_a_process_that_is_frozen_while_pokes_go_on_is_ended_and_says_where_it_stands() -> None:
    done = run("dog.guard()", FREEZE)
    assert done.returncode == 1
    assert "most recent call first" in done.stderr


def test_so_is_one_that_is_frozen_later() -> None:
    assert run("dog.guard()", BUSY, "dog.guard()", "dog.rest()", BUSY, FREEZE).returncode == 1


@pytest.mark.parametrize(
    "steps",
    [
        ["dog.guard()", BUSY],
        [FREEZE],
        ["dog.guard()", "dog.rest()", FREEZE],
        ["dog.guard()", "dog.close()", FREEZE],
        ["dog = Watchdog(0.1, enabled=False)", "dog.guard()", FREEZE],
    ],
    ids=["its threads run", "no poke goes on", "its pokes have ended", "it ends", "the watchdog is off"],
)
def test_any_other_process_goes_on(steps: list[str]) -> None:
    done = run(*steps)
    assert done.returncode == 0, done.stderr
