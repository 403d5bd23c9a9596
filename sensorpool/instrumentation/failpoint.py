"""Named places where a test may kill, freeze or break a process. They exist only where the test extra is installed.

``SENSORPOOL_FAILPOINT=step:action[:path]``: at ``step``, ``kill`` (SIGKILL), ``stop`` (SIGSTOP), or ``raise``.
With a path the action happens once: only in the process that manages to make that file.
"""

import importlib.util
import os
import signal
from functools import cache

VARIABLE = "SENSORPOOL_FAILPOINT"


class FailpointReached(RuntimeError):
    """The failpoint's action was ``raise``."""


def failpoint(step: str) -> None:
    """Do the action that the environment names for this step; mostly none.

    :raises FailpointReached: when the action is ``raise``.
    """
    armed = _armed()
    if armed is not None and armed[0] == step:
        _act(*armed)


@cache
def _armed() -> tuple[str, str, str] | None:
    wanted = os.environ.get(VARIABLE)
    if not wanted or importlib.util.find_spec("pytest") is None:
        return None
    step, action, path = (*wanted.split(":", 2), "", "")[:3]
    return step, action, path


def _act(step: str, action: str, path: str) -> None:
    if path:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return
    if action == "raise":
        raise FailpointReached(step)
    os.kill(os.getpid(), signal.SIGSTOP if action == "stop" else signal.SIGKILL)
