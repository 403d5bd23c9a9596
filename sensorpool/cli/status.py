"""``sensorpool status``."""

from contextlib import closing
from typing import Any

import click

from sensorpool.admin.status import status as state_of
from sensorpool.cli.output import json_option, print_json, print_table, repeat, say, watch_option
from sensorpool.cli.pools import pool_to_look_at
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
    counts = ", ".join(
        f"{count:,} {state.replace('_', ' ')}"
        for state, count in found["states"].items()
        if state != State.SENSING and (count or state != Ending.HANDED_BACK)
    )
    say(f"{found['sensing']:,} sensing in {counted(found['groups'], 'group')}; {counts}")
    for line in [*found["problems"], *found["warnings"]]:
        say(line)
    if with_ranges:
        _print_ranges(found["ranges"])


def _print_ranges(ranges: list[dict[str, Any]]) -> None:
    columns = ("holder", "last_tick_at", "lag_s", "groups", "pokes", "left", "isolated")
    rows = ([f"{each['shard_min']}-{each['shard_max']}", *(each[name] for name in columns)] for each in ranges)
    print_table("shard ranges", ("shards", *columns), rows)
