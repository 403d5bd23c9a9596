"""A class whose module imports what patches its whole process is refused where the pool pokes. Other classes go on.

A package of the same shape stands in for gevent and for eventlet; where gevent is installed, it is tried too.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

STANDINS = {
    "gevent/__init__.py": "",
    "gevent/monkey.py": """
        import os, threading
        REAL = threading.Lock
        saved = {}
        def is_module_patched(name): return name in saved
        def patch_thread(): saved["threading"] = 1; threading.Lock = threading.RLock
        def patch_all(): patch_thread()
        def get_original(module, name): return REAL
    """,
    "eventlet/__init__.py": """
        from eventlet import patcher
        monkey_patch = patcher.monkey_patch
    """,
    "eventlet/patcher.py": """
        import threading
        REAL = threading.Lock
        already = {}
        def is_monkey_patched(name): return name in already
        def monkey_patch(**on): already["thread"] = 1; threading.Lock = threading.RLock
    """,
}
CALLS = [
    "from gevent import monkey; monkey.patch_all()",
    "from gevent.monkey import patch_all as patch; patch()",
    "import gevent.monkey; gevent.monkey.patch_thread()",
    "import eventlet; eventlet.monkey_patch()",
    "from eventlet.patcher import monkey_patch; monkey_patch(thread=True)",
]
POKES = """
    import sys, threading, _thread
    from harness.until import until
    from sensorpool.config.settings import Settings
    from tests.support.builders import due_group
    from sensorpool.poke.poker import Poker
    lock = threading.Lock
    poker = Poker(Settings.load(sensors_enabled=["odd.Odd", "good.Good"]))
    poking = poker.begin()
    paths = {1: "odd.Odd", 2: "good.Good"}
    poking.put([poker.cache.keep(due_group(number), path, "{}") for number, path in paths.items()], list(paths))
    seen = {}
    def all_reported():
        seen.update((report.group.id, report) for report in poking.step())
        return len(seen) == 2
    until("both are reported", all_reported, patience=20)
    assert threading.Lock is lock, "it is patched"
    print(seen[1].outcome.name, seen[2].outcome.name, poker.classes.refusals["odd.Odd"], sep="|")
"""
GOOD = "class Good:\n    def poke(self, context): return True\n"


def _write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(textwrap.dedent(text))


def _run(folder: Path, code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    paths = f"import sys; sys.path[:0] = [{str(folder)!r}, {str(Path.cwd())!r}]\n"
    return subprocess.run(
        [sys.executable, "-c", paths + textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _assert_refused(folder: Path, call: str) -> None:
    _write(folder, "odd.py", f"{call}\n{GOOD.replace('Good', 'Odd')}")
    _write(folder, "good.py", GOOD)
    done = _run(folder, POKES)
    assert done.returncode == 0, done.stderr
    odd, good, why = done.stdout.strip().split("|")
    assert (odd, good) == ("CANNOT_POKE", "LANDED")
    assert "would patch the locks and threads" in why
    assert "\n" not in why


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in STANDINS.items():
        _write(tmp_path, name, text)
    return tmp_path


@pytest.mark.parametrize("call", CALLS)
def test_a_class_that_patches_its_process_cannot_be_poked_and_another_can(folder: Path, call: str) -> None:
    _assert_refused(folder, call)


@pytest.mark.parametrize("call", CALLS)
def test_without_the_refusal_the_stand_in_patches(folder: Path, call: str) -> None:
    done = _run(folder, f"import threading; lock = threading.Lock; {call}; print(threading.Lock is lock)")
    assert done.stdout.strip() == "False", done.stderr


@pytest.mark.parametrize("call", CALLS)
def test_a_process_that_is_patched_does_not_start(folder: Path, call: str) -> None:
    start = """
        from sensorpool import errors
        from sensorpool.poke.patches import refuse_patched
        refuse_patched()
        exec(sys.argv[1])
        try:
            refuse_patched()
        except errors.SettingsError as error:
            print(error)
    """
    done = _run(folder, start, call)
    assert done.returncode == 0, done.stderr
    assert "has patched the locks and threads of this process" in done.stdout


@pytest.mark.parametrize("call", CALLS[:3])
def test_so_with_the_real_one(tmp_path: Path, call: str) -> None:
    _assert_refused(tmp_path, call)
