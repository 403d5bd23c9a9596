"""``sensorpool status``, ``show``, ``explain``, ``list``, ``quarantine``, ``release``, ``callbacks``, ``config``."""

import json
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import click

from sensorpool.admin import instances
from sensorpool.cli.output import (
    is_terminal,
    json_option,
    print_fields,
    print_json,
    print_table,
    repeat,
    say,
    watch_option,
)
from sensorpool.client.pool_view import PoolView
from sensorpool.config.settings import Settings, variable
from sensorpool.model.states import Ending, State
from sensorpool.model.words import ago, counted, spell_time, when
from sensorpool.store import callback_rows
from sensorpool.store.inspecting import Selection

_GREATEST_ID = 2**63 - 1
_COLUMNS = (
    *("id", "state", "dag_id", "task_id", "run_id", "map_index", "try_number", "waiting_since"),
    *("condition", "reason"),
)
_TIMES = ("_at", "_since")  # how the names of times end


@click.command()
@click.option("--ranges", "with_ranges", is_flag=True, help="Also the state of each shard range.")
@watch_option
@json_option
def status(with_ranges: bool, watch: float | None, as_json: bool) -> None:
    """Say how many instances are in each state, what is wrong, and what waits."""
    repeat(lambda: _status(with_ranges, as_json), watch, as_json=as_json)


def _status(with_ranges: bool, as_json: bool) -> None:
    from sensorpool.admin.status import status as state_of

    with closing(PoolView.to_look_at()) as pool:
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
        columns = ("holder", "last_tick_at", "lag_s", "groups", "pokes", "left", "isolated")
        rows = [[f"{each['shard_min']}-{each['shard_max']}", *map(each.get, columns)] for each in found["ranges"]]
        print_table(("shards", *columns), rows)


@click.command()
@click.argument("instance_id", metavar="ID", type=int)
@json_option
def show(instance_id: int, as_json: bool) -> None:
    """Show one instance: its condition, its pokes, its deadline.

    The members of its group wait for the same condition.
    """
    found = instances.show(PoolView.to_look_at(), instance_id)
    if as_json:
        print_json(found)
        return
    pokes, traceback = found.pop("last_pokes"), found.pop("traceback")
    if is_terminal():
        now = datetime.now(UTC)
        found |= {name: when(found[name], now) for name in found if name.endswith(_TIMES) and found[name]}
    print_fields(found)
    if pokes:
        say()
        columns = ("at", "outcome", "seconds", "reason")
        say("last pokes")
        print_table(columns, [list(map(each.get, columns)) for each in pokes], crop=("reason",))
    _say_traceback(traceback)


@click.command()
@click.argument("instance_id", metavar="ID", type=int)
@json_option
def explain(instance_id: int, as_json: bool) -> None:
    """Say why one instance waits, or how its wait ended: a sentence for each thing that is known."""
    from sensorpool.admin import explain as inside

    found = inside.explain(PoolView.to_look_at(), instance_id)
    if as_json:
        print_json(found)
        return
    if (stopped := found.pop("stopped")) is not None:
        say(stopped)
    say(found.pop("why"))
    traceback = found.pop("traceback", None)
    print_fields({name.replace("_", " "): value for name, value in found.items() if value is not None})
    _say_traceback(traceback)


def _say_traceback(text: str | None) -> None:
    """Print the traceback of the last poke, if that raised an error."""
    for line in text.splitlines() if text else ():
        say(line)


@click.command("list")
@click.argument("text", metavar="[TEXT]", required=False)
@click.option("--state", type=click.Choice([str(state) for state in State]), help="Only instances in this state.")
@click.option("--ending", type=click.Choice([str(ending) for ending in Ending]), help="Only those that ended so.")
@click.option("--dag-id", help="Only instances of this DAG.")
@click.option("--task-id", help="Only instances of this task.")
@click.option("--run-id", help="Only instances of this run.")
@click.option("--overdue", is_flag=True, help="Only instances that still wait, past their deadline.")
@click.option("--late", is_flag=True, help="Only instances whose condition is later than it usually lands.")
@click.option("--before", metavar="ID", type=click.IntRange(1, _GREATEST_ID), help="Only lower IDs: the next page.")
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=1_000_000),
    default=100,
    show_default=True,
    help="The most instances to list.",
)
@watch_option
@json_option
def list_command(
    state: str | None,
    ending: str | None,
    overdue: bool,
    limit: int,
    watch: float | None,
    as_json: bool,
    **wanted: Any,
) -> None:
    """List instances, the newest first; with TEXT those that have it in their task, run, class, context or reason.

    On a terminal the table is cut to fit: `show ID` shows all, and so does a pipe.
    """
    pool = PoolView()

    def show_list() -> None:
        selection = Selection(
            state=State(state) if state else None,
            ending=Ending(ending) if ending else None,
            past=pool.database.read(pool.database.now) if overdue else None,
            **wanted,
        )
        _list(pool, selection, limit, as_json)

    repeat(show_list, watch, as_json=as_json)


def _list(pool: PoolView, selection: Selection, limit: int, as_json: bool) -> None:
    found = instances.list_instances(pool, selection, limit)
    if as_json:
        print_json(found)
        return
    title = counted(len(found), "instance")
    if len(found) == limit and (count := instances.count_instances(pool, selection)) > limit:
        title = f"{limit:,} of {count:,} instances; for the next ones: --before {found[-1]['id']}"
    is_cut = is_terminal()
    for row in found:
        context = "" if row["poke_context"] is None else json.dumps(row["poke_context"], ensure_ascii=False)
        op_classpath = row["op_classpath"].rpartition(".")[2] if is_cut else row["op_classpath"]
        row |= {"condition": f"{op_classpath} {context}", "since": ago(row["waiting_since"], datetime.now(UTC))}
        if row["ending"] == Ending.HANDED_BACK:  # it goes on by itself
            row["state"] = "handed back"
        if is_cut and row["map_index"] >= 0:
            row["task_id"] += f"[{row['map_index']}]"
    crop = ("dag_id", "task_id", "condition", *(["reason"] if any(row["reason"] for row in found) else []))
    columns = ("id", "state", "since", *crop) if is_cut else _COLUMNS
    say(title)
    print_table(columns, [list(map(row.get, columns)) for row in found], crop=crop)


@click.command()
@json_option
def quarantine(as_json: bool) -> None:
    """List the conditions in quarantine.

    Their pokes took their process down, so registering them is refused.
    """
    from sensorpool.admin import actions

    found = actions.quarantined(PoolView())
    if as_json:
        print_json(found)
        return
    columns = ("id", "op_classpath", "poke_context", "since", "crashes", "reason")
    say(f"{len(found)} in quarantine")
    if found:
        print_table(columns, [list(map(row.get, columns)) for row in found])
        say("once a condition is mended: `sensorpool release ID`")


@click.command()
@click.argument("ids", metavar="[ID...]", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Let all conditions out.")
@json_option
def release(ids: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Let conditions out of quarantine, by the IDs that `sensorpool quarantine` lists.

    Instances that failed stay failed: register them again.
    """
    from sensorpool.admin import actions

    if bool(ids) == everything:
        raise click.UsageError("name an ID that `sensorpool quarantine` lists, or --all")
    count = actions.let_out(PoolView(), None if everything else ids)
    if as_json:
        print_json({"released": count})
    else:
        say(f"{count} let out of quarantine")


@click.command()
@click.option("--send-all", is_flag=True, help="Have all tried at the next round of rescue.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="The most to list.")
@json_option
def callbacks(send_all: bool, limit: int, as_json: bool) -> None:
    """List the callbacks that wait to be sent, and why.

    Each is tried again by itself, ever more rarely. With --send-all all are tried at the next round of rescue, which
    is within SENSORPOOL_RESCUE_INTERVAL.
    """
    database = PoolView().database
    if send_all:
        hurried = database.run(callback_rows.hurry, database.read(database.now))
        if as_json:
            print_json({"tried_again": hurried})
        else:
            say(f"{hurried} tried again with the next round of rescue")
        return
    rows = [
        {
            "instance_id": row["instance_id"] if row["instance_id"] > 0 else None,
            "group_id": -row["instance_id"] if row["instance_id"] < 0 else None,  # that is late
            "task": row["task"],
            "since": spell_time(row["created_at"]),
            "tries": row["tries"],
            "next_try": spell_time(row["next_try_at"]),
            "cause": row["cause"],
        }
        for row in database.read(callback_rows.waiting, limit)
    ]
    if as_json:
        print_json(rows)
        return
    columns = ("instance_id", "group_id", "task", "since", "tries", "next_try", "cause")
    print_table(columns, [list(map(row.get, columns)) for row in rows])


@click.command()
@json_option
def config(as_json: bool) -> None:
    """Show the effective settings, and where each comes from; secrets are hidden."""
    from sensorpool.config.origins import with_origins

    shown, wrong = with_origins(Settings.load())
    for line in wrong:
        say(f"sensorpool: {line}", err=True)
    if as_json:
        print_json({name: value for name, (value, _) in shown.items()})
    else:
        rows = [
            (variable(name), ",".join(value) if isinstance(value, tuple) else value, origin)
            for name, (value, origin) in shown.items()
        ]
        print_table(("setting", "value", "from"), rows)
