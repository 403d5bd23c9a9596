"""Why a group is suspect: the texts that Redis keeps beside the lease of its range, and that people read."""

from collections.abc import Iterable
from enum import StrEnum


class Suspicion(StrEnum):
    """Why a group is suspect. The value is the text in Redis."""

    DEAD_HOLDER = "in a dead holder's hands"
    OVERRAN = "overran its time limit"
    SLOW = "its poke takes long"
    CLASS_HANGS = "its class hangs"  # nothing is known of the group itself
    CRASHED = "processes died with it in hand again and again"  # it is poked alone
    UNKNOWN = "a reason that is not known"

    @property
    def hangs(self) -> bool:
        """Whether the group, or its class, takes too long; every other suspect may end its process."""
        return self in _HANGING


_HANGING = frozenset({Suspicion.OVERRAN, Suspicion.SLOW, Suspicion.CLASS_HANGS})
_LOST_TURN = "; its turn was lost with its worker"  # after a reason
_KNOWN = {str(each): each for each in Suspicion}


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
            reason = str(text).removesuffix(_LOST_TURN)
            why = _KNOWN.get(reason, Suspicion.UNKNOWN)
            if reason != text:
                lost_turn.append(group_id)
        suspects[group_id] = why
    return suspects, lost_turn
