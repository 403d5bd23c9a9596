"""Queries of Airflow's database for many contexts at once; a bad context fails alone."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

Wait = TypeVar("Wait")

AT_ONCE = 500  # values in one statement


def read_each(
    read: Callable[[Mapping[str, Any]], Wait], contexts: Sequence[Mapping[str, Any]]
) -> list[Wait | Exception]:
    """Read each context; return the exception for a context that cannot be read."""
    found: list[Wait | Exception] = []
    for context in contexts:
        try:
            found.append(read(context))
        except Exception as error:
            found.append(error)
    return found


def text_of(value: Any) -> str:
    """Check that a value is text that a database can hold, and return it: other text would fail the whole statement.

    :raises ValueError: when the value is no such text.
    """
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{value!r} is no text that a database can hold")
    value.encode()  # a lone surrogate fails
    return value


def rows_of(query: Any, key: Any, values: Iterable[Any], session: Any) -> Iterator[Any]:
    """Run a query for the values of a key, `AT_ONCE` in a statement; no statement without values.

    :raises Exception: when the database does not answer.
    """
    waiting = iter(values)
    while some := list(islice(waiting, AT_ONCE)):
        yield from session.execute(query.where(key.in_(some)))
