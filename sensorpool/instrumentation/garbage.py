"""Python's search for garbage, less often: in a worker's child, in a command, and while a large batch is made.

Python searches whenever there are 700 objects more, and through all that there are whenever they have grown by a
quarter. What a job, an import or a batch makes stays until its end, so nearly nothing of it is garbage.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = 20_000, 20, 20  # thresholds of the collector; Python's own are 700, 10, 10


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Have Python search for garbage less often for a while, in all threads.

    The thresholds are left alone where the program has higher ones, or has switched the search off. Of two batches at
    once the first that ends restores them, and a threshold that the program has set meanwhile stays.
    """
    before = gc.get_threshold()
    seldom = (SELDOM[0], *before[1:])
    if not 0 < before[0] < SELDOM[0]:
        yield
        return
    gc.set_threshold(*seldom)
    try:
        yield
    finally:
        if gc.get_threshold() == seldom:
            gc.set_threshold(*before)
