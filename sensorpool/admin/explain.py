"""Why an instance waits, or how its wait ended, in sentences: what `show` lists, for a reader."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sensorpool.admin import findings, instances
from sensorpool.admin.look import Finding
from sensorpool.client.pool_view import PoolView
from sensorpool.client.register import spell
from sensorpool.model.execution_context import ExecutionContext
from sensorpool.model.states import Ending, Outcome, State
from sensorpool.model.usual_landing import FACTOR, expected, family_of
from sensorpool.model.values import Key
from sensorpool.model.words import between, seconds_since, spell_time, when
from sensorpool.poke.classes import ALL_OF, ANY_OF, JOINS
from sensorpool.store import inspecting
from sensorpool.store.late_conditions import UsualLandings

_ENDED = {
    Ending.LANDED: "its condition landed",
    Ending.TIMEOUT: "its timeout was over, and one more poke found nothing",
    Ending.EXECUTION_TIMEOUT: "its execution_timeout was over",
    Ending.POKE_ERROR: "its poke raised an error",
    Ending.SKIP: "its poke asked to skip",
    Ending.FAIL: "its poke asked to fail, or took its process down too often",
    Ending.CANCELLED: "it was cancelled",
    Ending.HANDED_BACK: "it was handed back, and its waiter pokes by itself",
}
_JOIN_FAILED = {
    ALL_OF: "one of the instances that it waits for has ended without landing",
    ANY_OF: "all instances that it waits for have ended without landing",
}
_SAW = {
    Outcome.LANDED: "found that it holds, and the result is being written",
    Outcome.NOT_LANDED: "found that it does not hold yet",
    Outcome.POKE_ERROR: "raised an error, and its flags forgive that",
    Outcome.POKE_TIMEOUT: "overran its time limit, so what it would have found is not known",
    Outcome.INFRA_FAILURE: "could not ask its backend",
    Outcome.CRASHED: "took its process down, and is tried again apart from others",
    Outcome.CANNOT_POKE: "was not possible in the process that tried: another one has to",
}
_HIDDEN = "The pool is not working, so nothing is poked. Its operators can see why."
_FEWEST = 2  # pokes that are worth a sentence of their own
_MOST_NAMED = 5  # other waiters, and instances of a join
_LATE_AFTER = 2  # intervals without a poke


def explain(pool: PoolView, instance_id: int) -> dict[str, Any]:
    """Return why an instance waits, or how its wait ended, and what is known about it: a sentence each.

    :returns: ``id``, ``state``, ``why``, and further sentences by what they are about.
    :raises Unknown: when there is no such instance.
    :raises Unreachable: when the database does not answer.
    """
    return sentences(pool, instances.show(pool, instance_id))


def sentences(pool: PoolView, shown: dict[str, Any], *, watches: bool = True) -> dict[str, Any]:
    """Return the sentences of `explain` for what `instances.show` has returned.

    :param watches: whether its reader may see the troubles of the pool, which name classes and workers.
    :raises Unreachable: when the database does not answer.
    """
    now = datetime.fromtimestamp(pool.database.read(pool.database.now) / 1000, UTC)
    condition = json.dumps(shown["poke_context"], ensure_ascii=False)
    explained = {
        "id": shown["id"],
        "state": shown["state"],
        "stopped": None,
        "why": "",
        "who": _name(shown),
        "condition": f"{shown['op_classpath']} {condition}",
    }
    if shown["state"] == State.SENSING:
        explained |= _wait(pool, shown, now, watches)
    else:
        explained |= _end(shown, now)
    more = ("on_settled", "quarantined", "traceback")
    return explained | {name: shown[name] for name in more if shown[name] is not None}


def _end(shown: dict[str, Any], now: datetime) -> dict[str, Any]:
    ending = _ENDED.get(shown["ending"], f"it is {shown['state']}")
    if shown["ending"] == Ending.FAIL:
        ending = _JOIN_FAILED.get(shown["op_classpath"], ending)
    waited = between(shown["waiting_since"], shown["settled_at"])
    why = f"It waits no more: {ending}, {when(shown['settled_at'], now)}, after {waited}."
    return {"why": why, "reason": shown["reason"]}


def why_stopped(unreachable: str | None, problems: Sequence[Finding], *, watches: bool) -> str | None:
    """Return why nothing is poked, in a sentence; None if pokes go on.

    :param unreachable: why Redis cannot be asked.
    :param problems: as `findings.wrong` returns them.
    :param watches: see `sentences`.
    """
    stopped = unreachable or next((each.said for each in problems if each.stops), None)
    if stopped is None:
        return None
    return f"{stopped[:1].upper()}{stopped[1:].rstrip('.')}." if watches else _HIDDEN


def _wait(pool: PoolView, shown: dict[str, Any], now: datetime, watches: bool) -> dict[str, Any]:
    problems = [] if shown["unreachable"] else findings.wrong(pool)
    stopped = why_stopped(shown["unreachable"], problems, watches=watches)
    group = pool.database.read(inspecting.group, shown["group_id"])
    interval = math.inf if group is None else group["poke_interval"] / 1000
    interval *= FACTOR if shown["is_sparse"] else 1
    is_late = (seconds_since(shown["last_poke_at"], now) or 0.0) > _LATE_AFTER * interval
    why = _why(shown, now)
    if is_late and stopped is None:
        why += f" A poke is due every {interval:g} s, and the next one is late."
    return {
        "stopped": stopped,
        "why": why,
        "waits_for": _joined(pool, shown),
        "last_poke_said": shown["last_reason"],
        "last_pokes": _pokes(shown["last_pokes"], now),
        "waiting_since": when(shown["waiting_since"], now),
        "next_poke": None if is_late or stopped else _next(shown, now),
        "usual_landing": None if group is None else _usual_landing(pool, group, now),
        "deadline": _deadline(shown, now),
        "who_else_waits": _others(shown),
        "trouble": "; ".join(each.said for each in problems if watches and not each.stops) or None,
    }


def _pokes(pokes: list[dict[str, Any]], now: datetime) -> str | None:
    """Return how many of the last pokes saw what, and how long they took."""
    if len(pokes) < _FEWEST:
        return None
    counted = Counter(each["outcome"] for each in pokes).most_common()
    said = ", ".join(f"{number} {outcome}" for outcome, number in counted)
    took = [each["seconds"] for each in pokes if each["seconds"] is not None]
    spans = f"; they took {min(took):.3g} to {max(took):.3g} s" if took else ""
    return f"{len(pokes)} since {when(pokes[0]['at'], now)}: {said}{spans}"


def _why(shown: dict[str, Any], now: datetime) -> str:
    if shown["last_poke_at"] is not None:
        saw = _SAW.get(shown["last_outcome"], f"saw: {shown['last_outcome']}")
        return f"The last poke of its condition, {when(shown['last_poke_at'], now)}, {saw}."
    if shown["last_outcome"] is None:
        return f"It was registered {when(shown['waiting_since'], now)}, and its condition was not poked yet."
    return f"Its condition has not landed. When it was poked last is {shown['last_outcome']}."


def _ids_of_join(shown: dict[str, Any]) -> list[int]:
    """Return the ids of the instances that a join waits for; none if it is no join, or was edited by hand."""
    context = shown["poke_context"]
    ids = context.get("instances") if isinstance(context, dict) and shown["op_classpath"] in JOINS else None
    return ids if isinstance(ids, list) and all(type(each) is int for each in ids) else []


def _joined(pool: PoolView, shown: dict[str, Any]) -> str | None:
    """Return which instances a join waits for; None if it is no join."""
    if not (ids := _ids_of_join(shown)):
        return None
    states = pool.database.read(inspecting.states, ids)
    landed = sum(state == State.SUCCESS for state in states.values())
    waiting = [each for each in ids if states.get(each) == State.SENSING]
    more = f" and {len(waiting) - _MOST_NAMED} more" if len(waiting) > _MOST_NAMED else ""
    named = ", ".join(str(each) for each in waiting[:_MOST_NAMED])
    return f"{landed} of {len(ids)} instances have landed" + (f"; waiting: {named}{more}" if waiting else "")


def _usual_landing(pool: PoolView, group: Any, now: datetime) -> str | None:
    """Return when the condition usually lands, by earlier landings of its family; None if that is not known."""
    family = family_of(group)
    usual = UsualLandings(pool.database).of([family], round(now.timestamp() * 1000))[family]
    found = expected(usual, group["logical_date"], group["registered_at"])
    if found is None:
        return None
    said = f"{when(spell_time(found.usually), now)}, by {found.landings} earlier landings"
    if now.timestamp() * 1000 > found.late_after:
        return f"{said}: it is late"
    return f"{said}; it is late after {when(spell_time(found.late_after), now)}"


def _next(shown: dict[str, Any], now: datetime) -> str | None:
    if shown["next_poke_at"] is None:
        return None
    return f"{when(shown['next_poke_at'], now)}: {shown['next_poke_because']}"


def _deadline(shown: dict[str, Any], now: datetime) -> str:
    waits = ExecutionContext.from_text(json.dumps(shown["execution_context"]), 0.0)
    if waits.ends_execution:
        then = "its execution_timeout is over: it fails, and Airflow retries it if its task has retries"
    elif waits.soft_fail:
        then = "one more poke, and it is skipped if that finds nothing (soft_fail)"
    else:
        then = "one more poke, and it fails if that finds nothing"
    return f"{when(shown['timeout_at'], now)}: {then}"


def _others(shown: dict[str, Any]) -> str | None:
    count = shown["members"] - 1
    if count < 1:
        return None
    named = [_name(each) for each in shown["shares_with"][:_MOST_NAMED]]
    if not named:
        return f"{count}, by the same pokes"
    more = f" and {count - len(named)} more" if count > len(named) else ""
    return f"{count}, by the same pokes: {', '.join(named)}{more}"


def _name(row: dict[str, Any]) -> str:
    key = Key(*(row[field] for field in Key._fields))
    return f"instance {row['id']}" if key.is_fresh else spell(key)
