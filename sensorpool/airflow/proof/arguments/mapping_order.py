"""The order of mappings among a sensor's arguments: a poke may depend on it, and a canonical poke_context loses it.

A word of digits says which mappings are not in the order of their names, and what order they have. The order of the
arguments themselves does not count.
"""

from collections.abc import Iterator, Mapping
from typing import Any

_WORD = "(order)="
_MISMATCH = "the order of its mappings is that of other arguments"


def as_word(arguments: Mapping[str, Any]) -> str:
    """Return the order of the mappings in encoded arguments; an empty string if all are in the order of their names."""
    found = []
    for number, mapping in enumerate(_mappings(arguments)):
        names = sorted(mapping)
        if number and list(mapping) != names:
            places = {name: str(place) for place, name in enumerate(names)}
            found.append(f"{number}:{','.join(places[name] for name in mapping)}")
    return f"{_WORD}{';'.join(found)}" if found else ""


def is_word(word: str) -> bool:
    """Whether a word is one of `as_word`."""
    return word.startswith(_WORD)


def restore(arguments: Mapping[str, Any], words: str) -> dict[str, Any]:
    """Return arguments with their mappings in the order that a word says.

    :param words: separated by spaces; words of other kinds are skipped.
    :raises ValueError: when the order is that of other arguments.
    """
    orders_text = next((word.removeprefix(_WORD) for word in words.split() if word.startswith(_WORD)), "")
    if not orders_text:
        return dict(arguments)
    places: dict[int, list[int]] = {}
    for part in orders_text.split(";"):
        number, _, row = part.partition(":")
        places[int(number)] = [int(place) for place in row.split(",")]
    orders: dict[int, list[str]] = {}
    for index, mapping in enumerate(_mappings(arguments)):
        if index in places:
            places_here = places.pop(index)
            names = sorted(mapping)
            if sorted(places_here) != list(range(len(names))):
                raise ValueError(_MISMATCH)
            orders[id(mapping)] = [names[place] for place in places_here]
    if places:
        raise ValueError(_MISMATCH)
    return {name: _in_order(value, orders) for name, value in arguments.items()}


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield all mappings, in an order that does not depend on their own."""
    if isinstance(value, Mapping):
        yield value
        for name in sorted(value):
            yield from _mappings(value[name])
    elif isinstance(value, list):
        for item in value:
            yield from _mappings(item)


def _in_order(value: Any, orders: Mapping[int, list[str]]) -> Any:
    if isinstance(value, Mapping):
        return {name: _in_order(value[name], orders) for name in orders.get(id(value), value)}
    if isinstance(value, list):
        return [_in_order(item, orders) for item in value]
    return value
