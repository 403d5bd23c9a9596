"""``sensorpool savings``: what sensors cost an Airflow, and what the pool would have made of them."""

import math
from contextlib import ExitStack
from textwrap import wrap
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from sensorpool.cli.output import cropped, is_wide, json_option, print_json, say
from sensorpool.instrumentation.redaction import printable

_TOP = 20  # rows of a table on a terminal
_NAME = 24  # cells of a name: then the table fits 80 columns
_WIDEST = 100  # cells of the figures
_UNITS = ((1e3, "k"), (1e6, "M"), (1e9, "G"))
_POOL_COLUMNS = ("slot-h", "pokes", "starts")
_AIRFLOW_DB = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"


@click.command()
@click.option(
    "--airflow-db",
    metavar="URL",
    required=True,
    envvar=_AIRFLOW_DB,
    show_envvar=True,
    help="Airflow's metadata database: its sql_alchemy_conn.",
)
@click.option("--pool-db", metavar="URL", help="The pool's database, if a pool runs and has one of its own.")
@click.option(
    "--days", type=click.FloatRange(0, 3650, min_open=True), default=30, show_default=True, help="How far back."
)
@click.option(
    "--poke-interval",
    type=click.FloatRange(1),
    default=60,
    show_default=True,
    metavar="S",
    help="Seconds that count as a sensor's poke_interval where Airflow does not keep it.",
)
@click.option(
    "--start-seconds",
    type=click.FloatRange(0),
    default=0.6,
    show_default=True,
    metavar="S",
    help="Seconds that a start of a task holds its slot before its code runs.",
)
@click.option(
    "--statement-seconds",
    type=click.FloatRange(1),
    default=120,
    show_default=True,
    metavar="S",
    help="How long one statement may take.",
)
@json_option
def savings(
    airflow_db: str,
    pool_db: str | None,
    days: float,
    poke_interval: float,
    start_seconds: float,
    statement_seconds: float,
    as_json: bool,
) -> None:
    """Estimate what the pool would have saved an Airflow 3 that does not run it yet.

    Reads Airflow's database, and writes nothing. Needs no pool, no Redis and no Airflow. Where a pool runs, it says
    what that has saved, too. docs/savings.md has each formula, and what it leaves out.
    """
    spans = {"days": days, "poke-interval": poke_interval, "start-seconds": start_seconds}
    for name, value in {**spans, "statement-seconds": statement_seconds}.items():
        if not math.isfinite(value):
            raise click.BadParameter(f"{value} is no number", param_hint=f"--{name}")
    from sensorpool.admin.savings.database import ReadOnlyDatabase
    from sensorpool.admin.savings.report import report
    from sensorpool.admin.savings.survey import Assumptions, survey

    assumed = Assumptions(start_seconds, poke_interval)
    with ExitStack() as open_until_the_end:

        def opened(url: str, named: str) -> ReadOnlyDatabase:
            database = ReadOnlyDatabase(url, named, statement_seconds)
            open_until_the_end.callback(database.close)
            return database

        airflow = opened(airflow_db, "--airflow-db")
        pool = opened(pool_db, "--pool-db") if pool_db else None
        bars = open_until_the_end.enter_context(
            Progress(
                console=Console(stderr=True), disable=as_json or not Console(stderr=True).is_terminal, transient=True
            )
        )
        bar = bars.add_task("task instances", total=None)
        found = survey(airflow, pool, days, assumed, lambda done, of: bars.update(bar, completed=done, total=of))
        where = airflow.where
    made = report(found, assumed)
    if as_json:
        print_json(made)
    else:
        _print(made, where, days)


def _print(made: dict[str, Any], where: str, days: float) -> None:
    total = made["total"]
    _say_all([f"Sensors of the last {days:g} days in {where}"])
    if not total["tries"]:
        say("There is no try of a sensor that waited without the pool.")
    else:
        say(f"{total['tries']:,} tries of sensors, among {made['task_instances']:,} task instances of any kind")
        _print_costs("DAG", made["by_dag"], [row["dag_id"] for row in made["by_dag"]], total, "pool:")
        from sensorpool.admin.savings.classes import readable

        classes = [f"{_MARKS[row['taken']]} {_short(readable(row['class']))}" for row in made["by_class"]]
        _print_costs("class", made["by_class"], classes, total, "pool:")
        _say_all(_conclusions(made))
    _say_all(_saved(made))
    if made["saved"] and made["saved"]["total"]["tries"]:
        saved = made["saved"]
        _print_costs("DAG", saved["by_dag"], [row["dag_id"] for row in saved["by_dag"]], saved["total"], "pool:")
    _say_all([f"- {line}" for line in _notes(made)])


_MARKS = {"by default": "+", "not by default": "-", "not known": "?"}


def _short(op_classpath: str) -> str:
    return op_classpath if is_wide() else op_classpath.rpartition(".")[2]


def _print_costs(title: str, rows: list[dict[str, Any]], names: list[str], total: dict[str, Any], pool: str) -> None:
    """Print a table of costs: the greatest rows and the total. Its figures are right, and its columns fit 80 cells."""

    wide = is_wide()
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column(title, no_wrap=True)
    for column in ("tries", "slot-h", "pokes", "dupl.", "starts", *(f"{pool}\n{each}" for each in _POOL_COLUMNS)):
        table.add_column(column, justify="right", no_wrap=True, vertical="bottom")
    shown = len(rows) if wide else _TOP
    for name, row in zip(names[:shown], rows[:shown], strict=True):
        table.add_row(Text(printable(name) if wide else cropped(printable(name), _NAME, 2)), *_figures(row))
    if len(rows) > shown:
        table.add_row(Text(f"{len(rows) - shown:,} more", style="italic"))
    table.add_row("total", *_figures(total), style="bold")
    console = Console(
        markup=False, emoji=False, highlight=False, width=_WIDEST + max(map(len, names), default=0) if wide else None
    )
    with console.capture() as printed:
        console.print(table)
    for line in printed.get().splitlines():
        if line.strip():
            click.echo(line.rstrip())  # noqa: TID251  # rich has coloured it; the names in it are printable
    say()


def _say_all(lines: list[str]) -> None:
    """Print lines; on a terminal they are cut between words."""
    for line in lines:
        for part in [line] if is_wide() else wrap(printable(line), Console().width, subsequent_indent="  "):
            say(part)


def _figures(row: dict[str, Any]) -> list[str]:
    pool = row["with_pool"]
    return [
        _count(row["tries"]),
        _hours(row["slot_hours"]),
        _count(row["pokes"]),
        _count(row["duplicate_pokes"]),
        _count(row["starts"]),
        _hours(pool["slot_hours"]),
        _count(pool["pokes"]),
        _count(pool["starts"]),
    ]


def _count(value: float) -> str:
    """Return a count in six cells at most."""
    if round(value) < 100_000:
        return f"{value:,.0f}"
    unit, name = next((each for each in _UNITS if value < 999.5 * each[0]), _UNITS[-1])
    return f"{value / unit:.3g}{name}"


def _hours(value: float) -> str:
    return f"{value:.2f}" if value < 99.995 else _count(value)


def _conclusions(made: dict[str, Any]) -> list[str]:
    total, by_taken = made["total"], made["by_taken"]
    pool = total["with_pool"]
    at_least = "at least " if made["unknown"]["condition"] else ""
    hours = {name: costs["slot_hours"] for name, costs in by_taken.items()}
    return [
        f"Slot-hours: {_hours(total['slot_hours'])} are held by sensors; with the pool it would have been "
        f"{_hours(pool['slot_hours'])}.",
        f"By class: + {_hours(hours['by default'])} of classes that the pool takes by default, - "
        f"{_hours(hours['not by default'])} of classes that it does not, ? {_hours(hours['not known'])} of classes "
        "that are not known; what is not + counts as it is (docs/sensors.md, docs/airflow.md).",
        f"Pokes: about {total['pokes']:,}, of which {at_least}{total['duplicate_pokes']:,} ask for what another one "
        f"asked; with the pool about {pool['pokes']:,}.",
        f"Starts of tasks: {total['starts']:,}; with the pool {pool['starts']:,}.",
        'The figures of the pool, and pokes in mode "poke", are estimates (docs/savings.md): a start counts as '
        f"{made['assumptions']['start_seconds']:g} s of a slot.",
    ]


def _saved(made: dict[str, Any]) -> list[str]:
    saved = made["saved"]
    if saved is None:
        return []
    total = saved["total"]
    if not total["tries"]:
        return ["A pool runs here, and has no wait of this time."]
    spared = total["slot_hours"] - total["with_pool"]["slot_hours"]
    return [
        f"A pool runs here: {total['tries']:,} waits in it; it keeps none from before {saved['since']}.",
        f'Saved, had each waited in mode "poke": {_hours(spared)} slot-hours, {total["duplicate_pokes"]:,} pokes.',
    ]


def _notes(made: dict[str, Any]) -> list[str]:
    """Say what is not known, and what counts in its place."""
    unknown, modes = made["unknown"], made["modes"]
    said = [
        (
            unknown["condition"],
            "tries: what they wait for is not known (Airflow keeps rendered fields of the last runs); "
            "they count as conditions of their own, without duplicates",
        ),
        (
            unknown["interval"],
            'tries in mode "poke": Airflow does not keep their poke_interval; '
            f"{made['assumptions']['poke_interval']:g} s counts (--poke-interval)",
        ),
        (
            unknown["starts"],
            "tries: the audit log has no starts of them (Airflow 3.1 writes none); "
            "starts and slots are inferred from their dates",
        ),
        (unknown["deferral"], "of these could have deferred by themselves; they count as if they had held their slot"),
        (unknown["tasks"], "task instances look like sensors, and their DAG no longer has the task: left out"),
        (modes["deferred"], "tries deferred by themselves: their polls are not recorded, and they stay as they are"),
        (
            0 if made["saved"] else modes["pooled"],
            "tries wait in a pool whose tables are not here: name its database by "
            "--pool-db; waits of it that are over count as deferred, and without an audit log as slots",
        ),
    ]
    lines = [f"{count:,} {text}" for count, text in said if count]
    if made["missing_tables"]:
        lines.append(
            f"this database lacks {', '.join(made['missing_tables'])}, or columns of it: what these tell is not known"
        )
    return lines
