"""What Redis answers, read: anybody may have written there, so what is not ours is passed over, or counts as lost."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sensorpool.model.values import Milliseconds


def pairs(answer: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Pair the fields and values of a hash, as a script returns them."""
    return zip(answer[::2], answer[1::2], strict=True)


def by_id(fields: Iterable[tuple[str, Any]]) -> Iterator[tuple[int, Any]]:
    """Yield the values of those fields that are ids, each with its id."""
    return ((int(name), value) for name, value in fields if _is_id(name))


def read_ids(names: Iterable[str]) -> list[int]:
    """Read ids; what is none is passed over."""
    return [int(name) for name in names if _is_id(name)]


def read_count(text: str | None) -> int:
    """Read a count; one that is none counts as lost."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else 0


def read_times(fields: Iterable[tuple[str, Any]]) -> dict[int, Milliseconds]:
    """Read ids, each with a time; what is none is passed over."""
    return {int(name): int(at) for name, at in fields if _is_id(name) and _is_id(str(at))}


def milliseconds(time: Sequence[Any]) -> Milliseconds:
    """Read what the command TIME answers."""
    return int(time[0]) * 1000 + int(time[1]) // 1000


def _is_id(text: str) -> bool:
    return text.isdecimal() and len(text) < 20 and int(text) < 2**63
