"""Finds the conditions that are later than their family usually lands: each is marked and logged once.

With `Settings.on_late_task` a callback's row is written with the mark. A round looks at a few pages of groups; the next
round goes on from there.
"""

import json
from typing import Any

from sqlalchemy import Connection

from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import storable
from sensorpool.model.json_text import read_json
from sensorpool.model.usual_landing import Expected, expected
from sensorpool.model.values import Milliseconds, shard_ranges
from sensorpool.model.words import spell_time
from sensorpool.store import callback_rows, inspecting, late_conditions
from sensorpool.worker.chores import round as limits
from sensorpool.worker.chores.round import Round

PAGES = 4  # in a round: 100,000 groups are looked at in twenty-five rounds
_AT_ONCE = 100  # groups that are marked in one transaction
_NAMED = 5  # of these, in the log
_WAITERS = 20  # that the task is told of
_LONGEST = 300  # characters of a condition in the sentence

log = logger(__name__)


def find(now: Round) -> None:
    """Look at the next groups, and mark the late ones.

    A condition is late as of the last look at all ranges: after an outage many have landed that no poke has seen yet.

    :raises Unreachable: when the database or Redis does not answer.
    """
    database, place, settings = now.database, now.place, now.settings
    now_ms = database.read(database.now)
    ranges = shard_ranges(settings.shards, settings.shard_code_upper_limit)
    as_of = min(now_ms, *(state.last for _, state in now.leases.look(ranges)))
    for _ in range(PAGES):
        page = database.read(late_conditions.waiting, place.groups, limits.ROWS)
        usual = now.usual_landings.of({each.family for each in page}, now_ms)
        late = {
            each.id: found
            for each in page
            if (found := expected(usual[each.family], each.logical_date, each.registered_at)) is not None
            and as_of > found.late_after
        }
        for start in range(0, len(late), _AT_ONCE):
            some = dict(list(late.items())[start : start + _AT_ONCE])
            new = database.run(_mark, some, now_ms, settings.on_late_task)
            now.done.late += len(new)
            for group_id in new[:_NAMED]:
                usually, after, _ = some[group_id]
                times = {"usually_lands_at": spell_time(usually), "late_after": spell_time(after)}
                log.warning("a condition is late", group_id=group_id, **times)
        place.groups = page[-1].id if len(page) == limits.ROWS else 0
        if not place.groups:
            return


def _mark(connection: Connection, late: dict[int, Expected], now: Milliseconds, task: str) -> list[int]:
    """Mark groups, and write a row for the task of each, in one transaction; return those that were not marked."""
    new = {group["id"]: group for group in late_conditions.mark(connection, late, now)}
    if task and new:
        waiters = {group_id: inspecting.others_of_group(connection, group_id, _WAITERS) for group_id in new}
        told = {each: json.dumps(_described(group, late[each], waiters[each])) for each, group in new.items()}
        callback_rows.note_late(connection, task, told, now)
    return list(new)


def _described(group: Any, late: Expected, waiters: list[Any]) -> dict[str, Any]:
    """Return what the task is told of a late group, as plain values."""
    context = storable(group["poke_context"])
    what = f"{group['op_classpath']} {context}"
    what = what if len(what) <= _LONGEST else f"{what[: _LONGEST - 1]}…"
    usually = spell_time(late.usually)
    return {
        "text": f"sensorpool: {what} is late, and {group['members']} wait for it; it usually lands at {usually}",
        "event": "late",
        "group_id": group["id"],
        "op_classpath": group["op_classpath"],
        "poke_context": read_json(context, context),
        "backend": group["backend"],
        "logical_date": spell_time(group["logical_date"]),
        "waiting_since": spell_time(group["registered_at"]),
        "usually_lands_at": usually,
        "late_after": spell_time(late.late_after),
        "members": group["members"],
        "waiters": [dict(each) for each in waiters],
    }
