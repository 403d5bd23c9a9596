"""How a process ended, in words, and whether it was killed from outside."""

import signal

# signals of a person, a supervisor or a terminal (SIGQUIT is Celery's cold shutdown), or a kernel without free memory
_OUTSIDE = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, -signal.SIGQUIT}


def ending(returncode: int) -> str:
    """Describe the end of a process by its return code: a negative code is a signal."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def is_from_outside(returncode: int) -> bool:
    """Whether a process was killed from outside, which says nothing of its own doing."""
    return returncode in _OUTSIDE


def is_command_killed(returncode: int) -> bool:
    """Whether a command was killed from outside; a shell returns 128 and the signal's number for its own command."""
    return is_from_outside(returncode) or is_from_outside(128 - returncode)
