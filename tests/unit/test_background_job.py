"""The tests pass in a background job of a script, where the shell has SIGINT ignored: ``make test &``."""

import shlex
import subprocess
import sys
from pathlib import Path


def test_a_process_that_a_test_starts_ends_by_ctrl_c() -> None:
    said = [sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"]
    assert subprocess.run(said, capture_output=True, text=True, check=True).stdout == "False\n"


def test_it_does_so_in_a_background_job_of_a_script() -> None:
    test = f"{Path(__file__)}::{test_a_process_that_a_test_starts_ends_by_ctrl_c.__name__}"
    job = shlex.join([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test])
    done = subprocess.run(["sh", "-c", f"{job} & wait $!"], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout
