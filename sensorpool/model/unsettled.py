"""Results that cannot be written for no known reason: poked again, and failed once that has lasted for a window.

Pure. Since when is kept in Redis, beside the lease of a group's range: lost, the window begins anew.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Fact, Milliseconds, Unsettled

MOST = 1_000  # groups of a range that are kept in mind; those beyond are poked on, and are not failed

Known = Callable[[Collection[int]], Mapping[int, Unsettled]]
"""Returns since when groups, asked for by id, are unsettled."""


def nothing_known(_: Collection[int]) -> Mapping[int, Unsettled]:
    """Return that no group was unsettled before."""
    return {}


def spell(unsettled: Unsettled) -> str:
    """Return it as `read` reads it."""
    return json.dumps(unsettled)


def read(text: str) -> Unsettled | None:
    """Read what `spell` wrote; what cannot be read counts as lost."""
    try:
        since, cause = json.loads(text)
        return Unsettled(int(since), str(cause)) if int(since) > 0 else None
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


def noted(facts: Sequence[Fact], causes: Mapping[int, str], known: Mapping[int, Unsettled]) -> dict[int, Unsettled]:
    """Return since when each of the groups that have a cause is unsettled, by id.

    :param known: those that were so before. A time to come, by a clock that was put back since, counts as now: the
        window would last longer by the width of that jump.
    """
    began = {fact.group_id: fact.began_at for fact in facts}
    since = {group_id: each.since for group_id, each in known.items()}
    return {
        group_id: Unsettled(min(since.get(group_id, began[group_id]), began[group_id]), cause)
        for group_id, cause in causes.items()
    }


def from_registration(known: Mapping[int, Unsettled], groups: Iterable[DueGroup]) -> dict[int, Unsettled]:
    """Return them so that nothing counts from before a group was registered: its id was another's then."""
    found = dict(known)
    for group in groups:
        if (each := found.get(group.id)) is not None and each.since < group.registered_at:
            found[group.id] = each._replace(since=group.registered_at)
    return found


def overdue(facts: Sequence[Fact], unsettled: Mapping[int, Unsettled], window: float) -> list[Fact]:
    """Return what ends the groups that have been unsettled for longer than the window, in seconds."""
    return [
        _failed(fact, unsettled[fact.group_id].cause, window)
        for fact in facts
        if fact.group_id in unsettled and fact.began_at - unsettled[fact.group_id].since >= _milliseconds(window)
    ]


def _failed(fact: Fact, cause: str, window: float) -> Fact:
    why = f"its result could not be written for longer than {window:g} s ({cause}); the poke said {fact.outcome}"
    return Fact(fact.group_id, fact.version, fact.began_at, Outcome.FAIL, why)


def _milliseconds(seconds: float) -> Milliseconds:
    return round(seconds * 1000)
