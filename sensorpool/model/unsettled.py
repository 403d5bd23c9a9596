"""Unsettled groups: their results cannot be written, because of a lock or for a cause that is not known.

They are poked again. Where the cause is not known they fail after the infrastructure window; a lock ends with its
holder. Pure. Redis keeps since when, beside the lease of the group's range; if Redis loses it, the window begins anew.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Fact, Milliseconds, Unsettled

LOCKED = "another transaction holds a lock on it"  # a cause that `health` knows
MOST = 1_000  # unsettled groups of a range that are remembered; further ones are poked on and do not fail

Known = Callable[[Collection[int]], Mapping[int, Unsettled]]
"""Returns since when and why the groups with these ids are unsettled."""


def nothing_known(_: Collection[int]) -> Mapping[int, Unsettled]:
    """Return nothing: no group was unsettled before."""
    return {}


def spell(unsettled: Unsettled) -> str:
    """Return since when and why as text, for `read`."""
    return json.dumps(unsettled)


def read(text: str) -> Unsettled | None:
    """Read a text of `spell`; None if it cannot be read."""
    try:
        since, cause = json.loads(text)
        return Unsettled(int(since), str(cause)) if int(since) > 0 else None
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


def noted(facts: Sequence[Fact], causes: Mapping[int, str], known: Mapping[int, Unsettled]) -> dict[int, Unsettled]:
    """Return since when and why each group that has a cause is unsettled, by id.

    :param known: the groups that were unsettled before. A time in the future (the clock was put back) counts as now,
        or the window would last longer by that jump. The time of a lock does not count for another cause.
    """
    began = {fact.group_id: fact.began_at for fact in facts}
    since = {
        group_id: each.since
        for group_id, each in known.items()
        if each.cause != LOCKED or causes.get(group_id) == LOCKED
    }
    return {
        group_id: Unsettled(min(since.get(group_id, began[group_id]), began[group_id]), cause)
        for group_id, cause in causes.items()
    }


def from_registration(known: Mapping[int, Unsettled], groups: Iterable[DueGroup]) -> dict[int, Unsettled]:
    """Move each time to the group's registration if it is earlier: the id belonged to another group then."""
    moved = dict(known)
    for group in groups:
        if (each := moved.get(group.id)) is not None and each.since < group.registered_at:
            moved[group.id] = each._replace(since=group.registered_at)
    return moved


def overdue(facts: Sequence[Fact], unsettled: Mapping[int, Unsettled], window: float) -> list[Fact]:
    """Return the facts that fail the groups that have been unsettled for longer than the window (seconds)."""
    return [
        _failed(fact, each.cause, window)
        for fact in facts
        if (each := unsettled.get(fact.group_id)) is not None
        and each.cause != LOCKED
        and fact.began_at - each.since >= _milliseconds(window)
    ]


def _failed(fact: Fact, cause: str, window: float) -> Fact:
    why = f"its result could not be written for longer than {window:g} s ({cause}); the poke said {fact.outcome}"
    return Fact(fact.group_id, fact.version, fact.began_at, Outcome.FAIL, why)


def _milliseconds(seconds: float) -> Milliseconds:
    return round(seconds * 1000)
