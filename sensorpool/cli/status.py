"""``sensorpool status``."""

from contextlib import closing
from typing import Any

import click

from sensorpool.admin.backends import said
from sensorpool.admin.status import status as state_of
from sensorpool.cli.output import is_wide, json_option, print_json, print_short, print_table, repeat, say, watch_option
from sensorpool.cli.pools import pool_to_look_at
from sensorpool.model.states import State

_TIME_OF_DAY = slice(11, 19)  # of 2026-11-23T06:13:34.860Z


@click.command()
@watch_option
@json_option
def status(watch: float | None, as_json: bool) -> None:
    """Show the number of instances in each state, the backlogs, and the state of each range."""
    repeat(lambda: _status(as_json), watch, as_json=as_json)


def _status(as_json: bool) -> None:
    with closing(pool_to_look_at()) as pool:
        found = state_of(pool)
    if as_json:
        print_json(found)
    else:
        print_status(found)


def print_status(found: dict[str, Any]) -> None:
    """Print a status as lines and a table of its ranges.

    :param found: as `admin.status.status` returns it.
    """
    counts = ", ".join(
        f"{count} {state.replace('_', ' ')}" for state, count in found["states"].items() if state != State.SENSING
    )
    say(f"{found['sensing']} sensing in {found['groups']} groups; {counts}")
    if found["late"]:
        say(f"{found['late']} conditions are later than usual: `sensorpool list --late` names who waits")
    if found["quarantined"]:
        say(f"{found['quarantined']} conditions in quarantine: `sensorpool quarantine` lists them")
    if found["deaths"]:
        count, last = len(found["deaths"]), found["deaths"][-1]
        say(f"{count} processes of the workers died in the last 10 minutes, the last one of {last}")
    for away in found["away"]:
        say(f"the {said(away)}; one poke asks it in {away['asked_in_s']:.0f} s: {away['cause']}")
    for op_classpath, why in found["wrong_calls"].items():
        say(f"{op_classpath} is poked one by one: its call for many was wrong, {why}")
    for each in found["budgets"]:
        if each["waiting"]:
            line = f"{each['waiting']} groups wait for the budget of {each['backends']} ({each['budget']})"
            say(f"{line}: it stretches their intervals to {each['stretch']:g} times as long")
    if found["overrunning"]:
        say(f"the last poke of {found['overrunning']} groups overran SENSORPOOL_POKE_TIMEOUT: `show ID` says more")
    if found["left_over"]["overdue"]:
        say(_waiting("for a poke", found["left_over"]["overdue"], found["left_over"]["longest_s"]))
    if found["wait_apart"]["groups"]:
        say(_waiting("to be poked apart", found["wait_apart"]["groups"], found["wait_apart"]["longest_s"]))
    for dag_id, sensing in found["dags_over_quota"].items():
        say(f"{dag_id} is over its quota ({sensing:,} sensing): its further sensors are refused")
    for problem in found["problems"]:
        say(problem)
    if found["unsettled"]:
        first = found["unsettled"][0]
        say(f"{len(found['unsettled'])} groups whose result cannot be written: {first['cause']}")
    if found["unpublished_s"] is not None:
        say(f"results have been waiting to be published for {found['unpublished_s']} s")
    for waiting in found["callbacks"]:
        line = f"{waiting['waiting']} callbacks of {waiting['task']} wait to be sent, for {waiting['oldest_s']} s"
        say(f"{line}: {waiting['cause']}" if waiting["cause"] else line)
    for each in found["not_here"]:
        say(f"{each['worker']} cannot poke {each['op_classpath']}, other workers have to: {each['why']}")
    _print_ranges(found["ranges"])


def _print_ranges(ranges: list[dict[str, Any]]) -> None:
    """Print the table of the shard ranges: on a terminal with the time of day only, to leave room for the holder."""
    is_short = not is_wide()
    columns = ("shards", "groups", "holder", "last tick", "lag s", "pokes", "left", "apart")
    rows = (
        (
            f"{r['shard_min']}-{r['shard_max']}",
            r["groups"],
            r["holder"],
            (r["last_tick_at"] or "")[_TIME_OF_DAY] if is_short else r["last_tick_at"],
            r["lag_s"],
            r["pokes"],
            r["left"],
            r["suspects"],
        )
        for r in ranges
    )
    if is_short:
        print_short("shard ranges", columns, rows, crop=("holder",))
    else:
        print_table("shard ranges", columns, rows)


def _waiting(for_what: str, groups: int, seconds: float) -> str:
    return f"{groups} groups wait {for_what}, the longest for {seconds:.0f} s"
