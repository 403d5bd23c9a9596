"""The order of mappings among a sensor's arguments: its poke may go by it, and the one spelling of a context has none.

It is said as a word of digits: which mappings are not in the order of their names, and how theirs goes. It is no part
of it in which order the arguments themselves were given.
"""

from collections.abc import Iterator, Mapping
from typing import Any

_WORD = "(order)="
_OF_OTHERS = "the order of its mappings was told of other arguments"


def of(arguments: Mapping[str, Any]) -> str:
    """Say the order of the mappings in encoded arguments; an empty string if it is that of their names."""
    found = []
    for number, mapping in enumerate(_mappings(arguments)):
        names = sorted(mapping)
        if number and list(mapping) != names:
            places = {name: str(place) for place, name in enumerate(names)}
            found.append(f"{number}:{','.join(places[name] for name in mapping)}")
    return f"{_WORD}{';'.join(found)}" if found else ""


def put_back(arguments: Mapping[str, Any], told: str) -> dict[str, Any]:
    """Return arguments with their mappings in the order that is told.

    :param told: words; of the others nothing is read.
    :raises ValueError: when it was told of other arguments.
    """
    said = next((word.removeprefix(_WORD) for word in told.split() if word.startswith(_WORD)), "")
    if not said:
        return dict(arguments)
    places: dict[int, list[int]] = {}
    for each in said.split(";"):
        number, _, row = each.partition(":")
        places[int(number)] = [int(place) for place in row.split(",")]
    orders: dict[int, list[str]] = {}
    for index, mapping in enumerate(_mappings(arguments)):
        if index in places:
            places_here = places.pop(index)
            names = sorted(mapping)
            if sorted(places_here) != list(range(len(names))):
                raise ValueError(_OF_OTHERS)
            orders[id(mapping)] = [names[place] for place in places_here]
    if places:
        raise ValueError(_OF_OTHERS)
    return {name: _in_order(value, orders) for name, value in arguments.items()}


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield all mappings, in an order that does not depend on theirs."""
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
