"""Numbers with their nouns, and names that were most likely meant, for people."""

from collections.abc import Iterable
from difflib import get_close_matches


def counted(number: int, noun: str, plural: str = "s") -> str:
    """Return a number with its noun: ``1 group``, ``1,200 groups``.

    :param plural: the ending of the noun for other numbers than one.
    """
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the name that an unknown one was most likely meant to be, in brackets; empty if none is near."""
    return _asked(get_close_matches(name, list(known), n=1, cutoff=0.7))


def nearest_class(path: str, known: Iterable[str]) -> str:
    """Return the class path that an unknown one was most likely meant to be, by the name of the class.

    Paths have long beginnings in common, so that whole paths would always be near.
    """
    names = {each.rpartition(".")[2].casefold(): each for each in sorted(known)}
    return _asked([names[each] for each in get_close_matches(path.rpartition(".")[2].casefold(), names, 1, 0.85)])


def _asked(matches: list[str]) -> str:
    return f" (did you mean {matches[0]}?)" if matches else ""
