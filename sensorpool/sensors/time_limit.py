"""The time limit of a poke in this process. A sensor has its server end the work of a poke that was given up."""

_seconds: float | None = None


def set_time_limit(seconds: float) -> None:
    """Set the time limit of each poke of this process."""
    global _seconds  # one value for the process, set at its start
    _seconds = seconds


def time_limit() -> float | None:
    """Return the time limit of a poke in seconds; None in a process that does not poke for a pool."""
    return _seconds
