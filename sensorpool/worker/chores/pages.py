"""Walks through a table in pages, which are neighbours by id. Each walk is bounded, and goes on in the next round."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sensorpool.store.pruning import Page

ROWS = 1_000  # in a page, which one statement looks at
PAGES = 20  # in one round, of one table
REST = 4  # rounds without a look, after a walk in which all rows were in order: a page costs as much as a hundred pokes


@dataclass(slots=True)
class Walk:
    """A walk through a table, and how far it has come."""

    after_id: int = 0  # the last id looked at; 0: the walk begins anew
    is_in_order: bool = True  # whether all pages were, since it began
    rest: int = 0  # rounds to come without a look

    def pages(self, look: Callable[[int], Page]) -> Iterator[Page]:
        """Yield the pages of one round. The walk moves on when the caller is done with a page.

        :param look: returns the page that follows an id.
        """
        if self.rest:
            self.rest -= 1
            return
        for _ in range(PAGES):
            page = look(self.after_id)
            yield page
            self.after_id = page.last or 0
            self.is_in_order = self.is_in_order and page.is_in_order
            if page.last is None:
                self.rest = REST if self.is_in_order else 0
                self.is_in_order = True
                return
