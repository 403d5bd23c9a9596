"""Readers of what Redis answers: any program may have written there, so a value that is not ours is skipped or lost."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sensorpool.model.values import Milliseconds


def pairs(answer: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Pair the fields and values of a hash, as a script returns them."""
    return zip(answer[::2], answer[1::2], strict=True)


def by_id(fields: Iterable[tuple[str, Any]]) -> Iterator[tuple[int, Any]]:
    """Yield id and value of each field whose name is an id."""
    return ((int(name), value) for name, value in fields if _is_id(name))


def read_late(names: Iterable[str]) -> list[int]:
    """Read the ids of late groups; one to be poked at once is negative. A text that is neither is skipped."""
    return [int(name) for name in names if _is_id(name.removeprefix("-"))]


def milliseconds(time: Sequence[Any]) -> Milliseconds:
    """Read the answer of the command TIME."""
    return int(time[0]) * 1000 + int(time[1]) // 1000


def _is_id(text: str) -> bool:
    return text.isdecimal() and len(text) < 20 and int(text) < 2**63
