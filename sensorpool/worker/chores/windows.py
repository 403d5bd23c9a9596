"""Walks through a table in windows of neighbours by id: bounded, and one goes on where the last one stopped."""

from collections.abc import Callable, Iterator

from sensorpool.store.pruning import Window

ROWS = 1_000  # of a window: looked at in one statement
WINDOWS = 20  # a round and table


def walk(look: Callable[[int], Window], after_id: int) -> Iterator[Window]:
    """Yield the windows of one round.

    :param look: returns the window that follows an id.
    """
    for _ in range(WINDOWS):
        window = look(after_id)
        yield window
        if window.last is None:
            return
        after_id = window.last
