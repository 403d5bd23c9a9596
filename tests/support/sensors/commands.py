"""Sensors whose pokes run a command. Their conditions hold; a command notes its process id as it begins and ends."""

import subprocess
from pathlib import Path
from typing import Any

from tests.support.sensors.gates import LONG


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
        script = f"echo $$ >> {begun}; test -e {quick} || sleep {LONG}; echo $$ >> {ended}"
        return subprocess.run(["sh", "-c", script], check=check).returncode


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
