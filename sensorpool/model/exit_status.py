"""How a process ended, in words, and whether by its own doing."""

import signal

# of a person, a supervisor or a terminal (SIGQUIT is Celery's cold shutdown), and of a kernel that is out of memory
_OUTSIDE = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, -signal.SIGQUIT}


def ending(returncode: int) -> str:
    """Say how a process ended, by its return code: a signal is a negative one."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def is_from_outside(returncode: int) -> bool:
    """Whether a process was killed from outside, which says nothing of what it did."""
    return returncode in _OUTSIDE
