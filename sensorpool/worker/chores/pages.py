"""Walks through a table in pages, which are neighbours by id. Each walk is bounded, and goes on in the next round."""

from collections.abc import Callable, Iterator

from sensorpool.store.pruning import Page

ROWS = 1_000  # in a page, which one statement looks at
PAGES = 20  # in one round, of one table
IN_ORDER = 4  # pages in which there was nothing to do; a round ends then, for each costs as much as a hundred pokes


def walk(look: Callable[[int], Page], after_id: int) -> Iterator[Page]:
    """Yield the pages of one round.

    :param look: returns the page that follows an id.
    """
    in_order = 0
    for _ in range(PAGES):
        page = look(after_id)
        yield page
        in_order += page.is_in_order
        if page.last is None or in_order >= IN_ORDER:
            return
        after_id = page.last
