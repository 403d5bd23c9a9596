"""Copies of this process: a process that a poke forks may do its work and end, but may not go on as the pool.

A fork copies the calling thread and no other. If a poke then returns in both processes, the copy stands in our code,
with our groups in hand and our connections. This module ends it before it takes up anything. A forked process whose
poke never returns (`multiprocessing`, `subprocess`) is not touched, and neither is a process that Celery forks.
"""

import os
import threading

EXIT_CODE = 1
_SAID = b"sensorpool: a poke forked this process and returned in the copy too; the copy has been ended\n"

# In a copy: the thread that forked. Otherwise empty. A list, because asking a list costs next to nothing.
FORKED: list[int] = []


def own_right() -> None:
    """Declare that this process is not a copy, although it may have been forked."""
    FORKED.clear()


def end_copy() -> None:
    """End this process if it is a copy and the calling thread is the one that forked."""
    if FORKED and FORKED[-1] == threading.get_ident():
        try:
            os.write(2, _SAID)
        finally:
            os._exit(EXIT_CODE)  # flushes and closes nothing: files and connections belong to the parent


def _on_fork() -> None:
    FORKED.append(threading.get_ident())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_on_fork)
