"""``sensorpool status``."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import click

from sensorpool.admin.backends import said
from sensorpool.admin.status import status as state_of
from sensorpool.cli.output import json_option, print_json, print_table, repeat, say, watch_option
from sensorpool.cli.pools import pool_to_look_at
from sensorpool.model.outage import Kind
from sensorpool.model.states import Ending, State
from sensorpool.model.words import counted


@click.command()
@click.option("--ranges", "with_ranges", is_flag=True, help="Also the state of each shard range.")
@watch_option
@json_option
def status(with_ranges: bool, watch: float | None, as_json: bool) -> None:
    """Say how many instances are in each state, what is wrong, and what waits."""
    repeat(lambda: _status(with_ranges, as_json), watch, as_json=as_json)


def _status(with_ranges: bool, as_json: bool) -> None:
    with closing(pool_to_look_at()) as pool:
        found = state_of(pool)
    if as_json:
        print_json(found)
        return
    print_status(found)
    if with_ranges:
        _print_ranges(found["ranges"])


def print_status(found: dict[str, Any]) -> None:
    """Print a status, a sentence a line: first what is wrong.

    :param found: as `admin.status.status` returns it.
    """
    counts = ", ".join(
        f"{count:,} {state.replace('_', ' ')}"
        for state, count in found["states"].items()
        if state != State.SENSING and (count or state != Ending.HANDED_BACK)
    )
    say(f"{found['sensing']:,} sensing in {counted(found['groups'], 'group')}; {counts}")
    for line in [*found["problems"], *_sentences(found)]:
        say(line)


def _sentences(found: dict[str, Any]) -> Iterator[str]:
    """Yield what `health` does not say."""
    for each in found["away"]:
        if each["why"] == Kind.THROTTLED:
            yield f"the {said(each)}: {each['cause']}"
    if found["late"]:
        yield f"later than usual: {counted(found['late'], 'condition')} (`sensorpool list --late` names who waits)"
    if found["quarantined"]:
        yield f"in quarantine: {counted(found['quarantined'], 'condition')} (`sensorpool quarantine` lists them)"
    if deaths := found["deaths"]:
        yield f"died in the last 10 minutes: {counted(len(deaths), 'process', 'es')} of the workers, last {deaths[-1]}"
    for each in found["budgets"]:
        if each["waiting"]:
            yield (
                f"waiting for the budget of {each['backends']} ({each['budget']}): "
                f"{counted(each['waiting'], 'group')}, for up to {each['longest_s']:.0f} s"
            )
    if found["overrunning"]:
        yield f"overran SENSORPOOL_POKE_TIMEOUT: the last poke of {counted(found['overrunning'], 'group')}"
    if (apart := found["wait_apart"])["groups"]:
        yield f"waiting to be poked apart: {counted(apart['groups'], 'group')}, for up to {apart['longest_s']:.0f} s"
    for dag_id, sensing in found["dags_over_quota"].items():
        yield f"{dag_id} is over its quota ({sensing:,} sensing): its further sensors are refused"
    if found["unpublished_s"] is not None:
        yield f"results have been waiting to be published for {found['unpublished_s']:.0f} s"
    for each in found["callbacks"]:
        cause = f": {each['cause']}" if each["cause"] else ""
        yield (
            f"waiting to be sent for {each['oldest_s']:.0f} s: {counted(each['waiting'], 'callback')} of "
            f"{each['task']}{cause}"
        )


def _print_ranges(ranges: list[dict[str, Any]]) -> None:
    columns = ("holder", "last_tick_at", "lag_s", "groups", "pokes", "left", "isolated")
    rows = ([f"{each['shard_min']}-{each['shard_max']}", *(each[name] for name in columns)] for each in ranges)
    print_table("shard ranges", ("shards", *columns), rows)
