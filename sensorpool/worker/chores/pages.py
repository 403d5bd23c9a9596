"""Walks through a table in pages of neighbours by id: bounded, and one goes on where the last one stopped."""

from collections.abc import Callable, Iterator

from sensorpool.store.pruning import Page

ROWS = 1_000  # of a page: looked at in one statement
PAGES = 20  # a round and table


def walk(look: Callable[[int], Page], after_id: int) -> Iterator[Page]:
    """Yield the pages of one round.

    :param look: returns the page that follows an id.
    """
    for _ in range(PAGES):
        page = look(after_id)
        yield page
        if page.last is None:
            return
        after_id = page.last
