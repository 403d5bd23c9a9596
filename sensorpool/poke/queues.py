"""Queues that several threads fill and empty at once."""

from collections import deque
from typing import TypeVar

Item = TypeVar("Item")


def drained(queue: deque[Item]) -> list[Item]:
    """Take all items out of a queue that other threads fill or empty."""
    taken: list[Item] = []
    try:
        while True:
            taken.append(queue.popleft())
    except IndexError:
        return taken
