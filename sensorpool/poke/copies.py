"""Copies of this process: what a poke forks may do its work and end, but never come back and go on as the pool.

A fork copies the thread that forks and no other. If a poke then returns in both processes, the copy stands where we
stand: with our groups in its hands, and our connections. It is ended here, before it takes up anything. What a poke
forks and never returns from (`multiprocessing`, `subprocess`) is not touched, and neither is what Celery forks.
"""

import os
import threading

EXIT_CODE = 1
_SAID = b"sensorpool: a poke forked this process and returned in the copy too; the copy has been ended\n"

# The thread that forked, in the copy; empty in a process of its own right. A list, for asking it costs next to nothing.
FORKED: list[int] = []


def own_right() -> None:
    """Say that this process is no copy of one that pokes, whoever forked it."""
    FORKED.clear()


def end_copy() -> None:
    """End this process if the thread that asks is the copy of one that forked."""
    if FORKED and FORKED[-1] == threading.get_ident():
        try:
            os.write(2, _SAID)
        finally:
            os._exit(EXIT_CODE)  # nothing of ours is flushed or closed: it belongs to the process that forked


def _on_fork() -> None:
    FORKED.append(threading.get_ident())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_on_fork)
