"""What several threads fill and empty at once."""

from collections import deque
from typing import TypeVar

Item = TypeVar("Item")


def drained(queue: deque[Item]) -> list[Item]:
    """Take everything out of a queue that other threads are filling or emptying."""
    taken: list[Item] = []
    try:
        while True:
            taken.append(queue.popleft())
    except IndexError:
        return taken
