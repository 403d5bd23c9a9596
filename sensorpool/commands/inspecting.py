"""``sensorpool status``, ``show``, ``list``, ``health`` and ``config``."""

import json
import sys

import click

from sensorpool import look
from sensorpool.commands.output import json_option, print_fields, print_json, print_table, say
from sensorpool.pool import Pool
from sensorpool.settings import Settings, unknown_variables
from sensorpool.states import State


@click.command()
@json_option
def status(as_json: bool) -> None:
    """Show what waits, how much ended how, and how each shard range is doing."""
    found = look.status(Pool())
    if as_json:
        print_json(found)
        return
    counts = ", ".join(f"{count} {state}" for state, count in found["states"].items() if state != State.SENSING)
    click.echo(f"{found['sensing']} sensing in {found['groups']} groups; {counts}")
    if found["quarantined"]:
        click.echo(f"{found['quarantined']} conditions in quarantine: `sensorpool quarantine` lists them")
    for dag_id, sensing in found["dags_over_quota"].items():
        click.echo(f"{dag_id} is over its quota ({sensing:,} sensing): no more of its sensors are taken")
    if found["unpublished_s"] is not None:
        click.echo(f"results have been waiting to be published for {found['unpublished_s']} s")
    columns = ("shards", "groups", "holder", "last tick", "lag s", "pokes", "left", "apart")
    rows = (
        (
            f"{r['shard_min']}-{r['shard_max']}",
            r["groups"],
            r["holder"],
            r["last_tick_at"],
            r["lag_s"],
            r["pokes"],
            r["left"],
            r["suspects"],
        )
        for r in found["ranges"]
    )
    print_table("shard ranges", columns, rows)


@click.command()
@click.argument("instance_id", metavar="ID", type=int)
@json_option
def show(instance_id: int, as_json: bool) -> None:
    """Show one instance: what it waits for, its last and next poke, its deadline, and who shares its group."""
    found = look.show(Pool(), instance_id)
    if as_json:
        print_json(found)
    else:
        print_fields(found)


@click.command("list")
@click.option("--state", type=click.Choice([str(state) for state in State]))
@click.option("--dag-id")
@click.option("--limit", type=click.IntRange(min=1, max=1_000_000), default=100, show_default=True)
@json_option
def list_command(state: str | None, dag_id: str | None, limit: int, as_json: bool) -> None:
    """List instances, the newest first."""
    found = look.list_instances(Pool(), state=State(state) if state else None, dag_id=dag_id, most=limit)
    if as_json:
        print_json(found)
        return
    columns = (
        "id",
        "state",
        "dag_id",
        "task_id",
        "run_id",
        "map_index",
        "try_number",
        "waiting_since",
        "reason",
    )
    print_table(f"{len(found)} instances", columns, ([row[column] for column in columns] for row in found))


@click.command()
@json_option
def quarantine(as_json: bool) -> None:
    """List the conditions in quarantine: their pokes took their process down, so they are refused."""
    from sensorpool import quarantine as inside

    found = inside.quarantined(Pool())
    if as_json:
        print_json(found)
        return
    columns = ("op_classpath", "poke_context", "since", "crashes", "reason")
    rows = ([json.dumps(row[c]) if c == "poke_context" else row[c] for c in columns] for row in found)
    print_table(f"{len(found)} in quarantine", columns, rows)


@click.command()
@click.argument("ids", metavar="[ID...]", type=int, nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Let everything out.")
@json_option
def release(ids: tuple[int, ...], everything: bool, as_json: bool) -> None:
    """Let out of quarantine what these instances waited for. Instances that failed stay failed: register them again."""
    from sensorpool import quarantine as inside

    if bool(ids) == everything:
        raise click.UsageError("name the ID of an instance that waited for it, or --all")
    count = inside.release(Pool(), None if everything else ids)
    if as_json:
        print_json({"released": count})
    else:
        click.echo(f"{count} let out of quarantine")


@click.command()
@json_option
def health(as_json: bool) -> None:
    """Say whether the pool works. 1, and the reason, when ticks stop, a server is away, or a range has no holder."""
    problems = look.health(Pool())
    if as_json:
        print_json({"healthy": not problems, "problems": problems})
    else:
        for problem in problems or ["healthy"]:
            say(problem)
    sys.exit(1 if problems else 0)


@click.command()
@json_option
def config(as_json: bool) -> None:
    """Show the effective settings; secrets are hidden."""
    shown = Settings.load().shown()
    if as_json:
        print_json(shown)
        return
    print_fields({f"SENSORPOOL_{name.upper()}": value for name, value in shown.items()})
    for name in unknown_variables():
        say(f"sensorpool: there is no such setting: {name}", err=True)
