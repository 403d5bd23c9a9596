"""Why a group is suspect: the texts that Redis keeps beside the lease of its range.

They are sentences because the version before writes and compares sentences: it takes an unknown text for a crash, and
would poke a hanging group among the crashing ones. This version also reads codes (``overran``), so that the next
version may write codes. The commands make their own texts for people.
"""

from collections.abc import Iterable
from enum import StrEnum


class Suspicion(StrEnum):
    """Why a group is suspect. The value is the text in Redis."""

    DEAD_HOLDER = "in a dead holder's hands"
    OUT_OF_MEMORY = "ran out of memory, files or threads"
    OVERRAN = "overran its time limit"
    SLOW = "its poke takes long"
    CLASS_HANGS = "its class hangs"  # nothing is known of the group itself
    CRASHED = "its poke took its process down before"
    LATE_CRASHES = "processes that had poked it died again and again"
    UNKNOWN = "a reason of another version"

    @property
    def hangs(self) -> bool:
        """Whether the group, or its class, takes too long; every other suspect may end its process."""
        return self in _HANGING


_HANGING = frozenset({Suspicion.OVERRAN, Suspicion.SLOW, Suspicion.CLASS_HANGS})
_LOST_TURN = "; its turn was lost with its worker"  # after a reason
_LOST_TURN_CODE = ";lost_turn"
_FIRST_RELEASE = {"ran out of memory": Suspicion.OUT_OF_MEMORY}  # its only text that differs from this version's
_KNOWN = {str(each): each for each in Suspicion} | {each.name.lower(): each for each in Suspicion} | _FIRST_RELEASE


def spell(why: Suspicion, *, lost_turn: bool = False) -> str:
    """Return a suspicion as text, for `read`.

    :param lost_turn: whether the group was due and its worker ended before the poke: the group is due at once.
    """
    return f"{why}{_LOST_TURN}" if lost_turn else str(why)


def read(fields: Iterable[tuple[int, object]]) -> tuple[dict[int, Suspicion], list[int]]:
    """Read the texts of `spell`; return why each group is suspect, and the groups that lost their turn."""
    suspects: dict[int, Suspicion] = {}
    lost_turn: list[int] = []
    for group_id, text in fields:
        why = _KNOWN.get(text)  # type: ignore[call-overload]  # a text, unless Redis was edited
        if why is None:
            reason = str(text).removesuffix(_LOST_TURN).removesuffix(_LOST_TURN_CODE)
            why = _KNOWN.get(reason, Suspicion.UNKNOWN)
            if reason != text:
                lost_turn.append(group_id)
        suspects[group_id] = why
    return suspects, lost_turn
