"""Builders of values for unit tests: groups, pokes, facts and members."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from harness.until import until
from sensorpool.config.defaults import INFRA_FAILURES
from sensorpool.model.not_landed import Seen, each_report
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Fact, Member, Report
from sensorpool.poke.answer import Answers
from sensorpool.poke.classes import Classes
from sensorpool.poke.tools import PokeTools
from sensorpool.poke.unit import PokeUnit

START = 1_700_000_000_000  # milliseconds
TIMEOUT = 600_000


def due_group(group_id: int = 1, **columns: Any) -> DueGroup:
    """A group as the load returns it."""
    values: dict[str, Any] = {
        "version": 1,
        "hashcode": group_id,
        "members": 1,
        "poke_interval": 5_000,
        "phase": 0,
        "registered_at": START,
        "next_deadline": None,
    }
    return DueGroup(group_id, **(values | columns))


def classpath(cls: type) -> str:
    """Return the class path of a sensor class of these tests."""
    return f"{cls.__module__}.{cls.__qualname__}"


def one(group_id: int, cls: type, tools: PokeTools | None = None, **poke_context: Any) -> PokeUnit:
    """Return the unit of a group whose sensor is not constructed yet."""
    if tools is None:
        tools = PokeTools(Classes([classpath(cls)]), Answers(INFRA_FAILURES), {})
    return PokeUnit(due_group(group_id), classpath(cls), json.dumps(poke_context), tools)


def drive(lane: Any, finished: Callable[[list[Report]], Any], what: str) -> list[Report]:
    """Look after a lane, as a job does, until its reports are enough."""
    seen: list[Report] = []

    def enough() -> bool:
        lane.supervise()
        for reports in lane.collect():
            seen.extend(each_report(reports))
        return bool(finished(seen))

    until(what, enough, every=0.005)
    return seen


def in_order(seen: Iterable[Seen]) -> list[Report]:
    """Return a report for each poke, in the order of the groups' ids."""
    return sorted(each_report(seen), key=lambda report: report.group.id)


def outcomes(seen: Sequence[Seen]) -> dict[int, Outcome]:
    """Return the outcome of each group; no group may be reported twice."""
    reports = each_report(seen)
    found = {report.group.id: report.outcome for report in reports}
    assert len(found) == len(reports), f"reported twice: {sorted(report.group.id for report in reports)}"
    return found


def fact(outcome: Outcome, *, began_at: int = START + 1_000, version: int = 1, **values: Any) -> Fact:
    """Return a fact about group 1."""
    return Fact(1, version, began_at, outcome, **values)


def member(*, joined_version: int = 1, next_deadline: int | None = None, **patience: Any) -> Member:
    """Return a sensing instance of group 1 with this execution context."""
    how = {"poke_interval": 5.0, "timeout": TIMEOUT / 1000} | patience
    limit = how["timeout"] if how.get("execution_timeout") is None else min(how["timeout"], how["execution_timeout"])
    timeout_at = START + round(limit * 1000)
    return Member(
        id=7,
        group_id=1,
        joined_version=joined_version,
        start_date=START,
        timeout_at=timeout_at,
        next_deadline=timeout_at if next_deadline is None else next_deadline,
        execution_context=json.dumps(how),
    )
