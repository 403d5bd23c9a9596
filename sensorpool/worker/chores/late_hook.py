"""Tells the hook `on_late` of each late condition once; one that it did not take is told again a minute later.

A process claims a condition before it tells it. If it dies in between, the condition is told again, too.
"""

import time
from typing import Any

from sensorpool.errors import Refused
from sensorpool.instrumentation.redaction import storable
from sensorpool.model.json_text import read_json
from sensorpool.model.times import spell_time
from sensorpool.model.usual_landing import begins, family_of
from sensorpool.model.values import Milliseconds
from sensorpool.store import inspecting, late_conditions
from sensorpool.worker.chores.round import TRIES_LATER, Round
from sensorpool.worker.usual_landings import UsualLandings

AT_ONCE = 20  # conditions that a round tells, and in half of `rescue_interval` at most
AGAIN = 60_000  # milliseconds after which a condition that was claimed, and not told, is told again
_WAITERS = 20  # that are named
_LONGEST = 300  # characters of a condition in the sentence


def tell(now: Round) -> object:
    """Tell of the next conditions. The first one whose hook does not answer ends the round; it is told again later.

    :returns: `TRIES_LATER` where one that the hook did not take has its next turn in a later round.
    :raises Refused: when the hook does not take one; the others were told.
    :raises Unreachable: when the hook, or the database, does not answer.
    """
    worker, _, _ = now
    if not worker.late_hook.is_set:
        return None
    database, refused = worker.database, None
    ends = time.monotonic() + worker.settings.rescue_interval / 2
    for group in database.read(late_conditions.untold, database.read(database.now) - AGAIN, AT_ONCE):
        if time.monotonic() > ends:
            break
        now_ms = database.read(database.now)  # a slow hook must not make a claim old before its time
        if not database.run(late_conditions.claim, group, now_ms):
            continue  # another process tells it
        waiters = database.read(inspecting.others_of_group, group["id"], _WAITERS)
        try:
            worker.late_hook.tell(_described(group, waiters, worker.usual_landings, now_ms))
        except Refused as error:  # of this condition alone, perhaps
            refused = error
            continue
        database.run(late_conditions.told, group["id"], now_ms)
    if refused is not None:
        raise refused
    return TRIES_LATER if database.read(late_conditions.is_refused) else None


def _described(group: Any, waiters: list[Any], usual_landings: UsualLandings, now: Milliseconds) -> dict[str, Any]:
    """Return what the hook is told of a late group, as plain values."""
    family = family_of(group)
    began = begins(group["logical_date"], group["registered_at"])
    if usual_landings.is_unread(family):
        usual_landings.read([family], now)
    usual = usual_landings.of(family, began)
    usually, after = (None, None) if usual is None else usual.expects(began, group["registered_at"])
    context = storable(group["poke_context"])
    what = f"{group['op_classpath']} {context}"
    what = what if len(what) <= _LONGEST else f"{what[: _LONGEST - 1]}…"
    since = "" if usually is None else f"; it usually lands at {spell_time(usually)}"
    return {
        "text": f"sensorpool: {what} is late, and {group['members']} wait for it{since}",
        "event": "late",
        "group_id": group["id"],
        "op_classpath": group["op_classpath"],
        "poke_context": read_json(context, context),
        "backend": group["backend"],
        "logical_date": spell_time(group["logical_date"]),
        "waiting_since": spell_time(group["registered_at"]),
        "usually_lands_at": spell_time(usually),
        "late_after": spell_time(after),
        "members": group["members"],
        "waiters": [dict(each) for each in waiters],
    }
