"""Sensors whose pokes run a command. Their conditions hold; a command notes its process id as it begins and ends."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.sensors.gates import LONG

# no shell: dash loses an interrupt that arrives while it starts another program
_SCRIPT = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
begun, ended, quick, long = sys.argv[1:]
def note(file):
    with open(file, "a") as notes:
        notes.write(f"{os.getpid()}\\n")
note(begun)
if not os.path.exists(quick):
    time.sleep(float(long))
note(ended)
"""


class Command:
    """Raises what `subprocess` raises of a command that fails."""

    def __init__(self, folder: str, name: str) -> None:
        self.folder = folder
        self.name = name

    def poke(self, context: Any) -> Any:
        self.run(check=True)
        return True

    def run(self, *, check: bool) -> int:
        """Run the command, which takes long unless there is a file `quick`; return its return code."""
        begun, ended, quick = (Path(self.folder) / f"{name}" for name in (f"{self.name}.begun", "ended", "quick"))
        command = [sys.executable, "-I", "-S", "-c", _SCRIPT, begun, ended, quick, str(LONG)]
        return subprocess.run(command, check=check).returncode


class JudgedCommand(Command):
    """Raises an error of its own."""

    def poke(self, context: Any) -> Any:
        if returncode := self.run(check=False):
            raise ValueError(f"the command returned {returncode}")
        return True


class TestedCommand(Command):
    """Takes any failure of the command for a condition that does not hold."""

    def poke(self, context: Any) -> Any:
        return self.run(check=False) == 0
