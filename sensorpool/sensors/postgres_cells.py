"""Cells of PostgreSQL that Python's types cannot hold, as ``'infinity'::date``: they are read as text.

psycopg reads all cells of a row, of which one decides, and would fail at any of them.
"""

from contextlib import suppress
from functools import cache
from typing import Any


def read_any_cell(connection: Any, _record: Any) -> None:
    """Have a connection of psycopg read as text what it cannot read otherwise."""
    from psycopg.pq import Format

    adapters = connection.adapters
    for info in adapters.types:
        for oid in (info.oid, info.array_oid):
            if (loader := adapters.get_loader(oid, Format.TEXT)) is not None:
                adapters.register_loader(oid, _lenient(loader))


@cache
def _lenient(loader: type) -> type:
    from psycopg.adapt import Loader

    class LenientLoader(Loader):
        def __init__(self, oid: int, context: Any = None) -> None:
            super().__init__(oid, context)
            self._exact = loader(oid, context)

        def load(self, data: Any) -> Any:
            with suppress(Exception):
                return self._exact.load(data)
            return str(bytes(data), "utf-8", "replace")

    return LenientLoader
