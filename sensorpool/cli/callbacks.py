"""``sensorpool callbacks``."""

import click

from sensorpool.admin import callbacks as inside
from sensorpool.cli.output import json_option, print_json, print_table, say
from sensorpool.cli.pools import pool_to_look_at

_COLUMNS = ("instance_id", "group_id", "task", "since", "tries", "next_try", "cause")


@click.command()
@click.option("--send", "instance_ids", metavar="ID", type=int, multiple=True, help="Send those of this instance now.")
@click.option("--send-all", is_flag=True, help="Send all now.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="The most to list.")
@json_option
def callbacks(instance_ids: tuple[int, ...], send_all: bool, limit: int, as_json: bool) -> None:
    """List the callbacks that wait to be sent, and why.

    Each is tried again by itself, ever more rarely. With --send it is tried at the next round of rescue, which is
    within SENSORPOOL_RESCUE_INTERVAL.
    """
    pool = pool_to_look_at()
    if instance_ids or send_all:
        hurried = inside.hurry(pool, None if send_all else instance_ids)
        if as_json:
            print_json({"tried_again": hurried})
        else:
            say(f"{hurried} tried again with the next round of rescue")
        return
    rows = inside.waiting(pool, limit)
    if as_json:
        print_json(rows)
        return
    print_table("callbacks that wait", _COLUMNS, [[row[column] for column in _COLUMNS] for row in rows])
