"""``sensorpool savings``: what sensors cost an Airflow, and what the pool would have made of them."""

from typing import Any

import click

from sensorpool.cli.output import is_terminal, json_option, print_json, print_table, say

_TOP = 20  # rows of a table on a terminal
_COLUMNS = ("tries", "slot-h", "pokes", "dupl.", "starts", "slot-h*", "pokes*", "starts*")
_MARKS = {"by default": "+", "not by default": "-", "not known": "?"}


@click.command()
@click.option(
    "--airflow-db",
    metavar="URL",
    required=True,
    envvar="AIRFLOW__DATABASE__SQL_ALCHEMY_CONN",
    show_envvar=True,
    help="Airflow's metadata database: its sql_alchemy_conn.",
)
@click.option(
    "--days", type=click.FloatRange(0, 3650, min_open=True), default=30, show_default=True, help="How far back."
)
@click.option(
    "--poke-interval",
    type=click.FloatRange(1, 86_400),
    default=60,
    show_default=True,
    metavar="S",
    help="Seconds that count as a sensor's poke_interval where Airflow does not keep it.",
)
@json_option
def savings(airflow_db: str, days: float, poke_interval: float, as_json: bool) -> None:
    """Estimate what the pool would have saved an Airflow 3 that does not run it yet.

    Reads Airflow's database, and writes nothing. Needs no pool, no Redis and no Airflow. docs/savings.md has each
    formula, and what it leaves out.
    """
    from sensorpool.admin.savings.airflow_database import ReadOnlyDatabase
    from sensorpool.admin.savings.survey import report, survey

    airflow = ReadOnlyDatabase(airflow_db)
    try:
        made = report(survey(airflow, days, poke_interval))
    finally:
        airflow.close()
    if as_json:
        print_json(made)
    else:
        _print(made, f"Sensors of the last {days:g} days in {airflow.where}")


def _print(made: dict[str, Any], title: str) -> None:
    total = made["total"]
    say(title)
    if total["tries"]:
        say(f"{total['tries']:,} tries of sensors, among {made['task_instances']:,} task instances of any kind")
        _print_costs("DAG", made["by_dag"], [row["dag_id"] for row in made["by_dag"]], total)
        paths = [row["class"].rpartition(".")[2] if is_terminal() else row["class"] for row in made["by_class"]]
        classes = [f"{_MARKS[row['taken']]} {path}" for row, path in zip(made["by_class"], paths, strict=True)]
        _print_costs("class", made["by_class"], classes, total)
        for line in _conclusions(made):
            say(line)
    else:
        say("There is no try of a sensor that waited without the pool.")
    for count, text in _notes(made):
        if count:
            say(f"- {count:,} {text}")


def _print_costs(kind: str, rows: list[dict[str, Any]], names: list[str], total: dict[str, Any]) -> None:
    """Print a table of costs: the greatest rows, and the total."""
    shown = _TOP if is_terminal() else len(rows)
    lines = [[name, *_figures(row)] for name, row in zip(names[:shown], rows[:shown], strict=True)]
    if len(rows) > shown:
        lines.append([f"{len(rows) - shown:,} more", *[""] * len(_COLUMNS)])
    lines.append(["total", *_figures(total)])
    say(f"By {kind} (* with the pool)")
    print_table((kind, *_COLUMNS), lines)
    say()


def _figures(row: dict[str, Any]) -> list[str]:
    pool, counts = row["with_pool"], ("pokes", "duplicate_pokes", "starts")
    now = [_count(row["tries"]), _hours(row["slot_hours"]), *(_count(row[name]) for name in counts)]
    return [*now, _hours(pool["slot_hours"]), _count(pool["pokes"]), _count(pool["starts"])]


def _count(value: float) -> str:
    """Return a count in six cells at most."""
    if round(value) < 100_000:
        return f"{value:,.0f}"
    unit, name = (1e6, "M") if value >= 999_500 else (1e3, "k")
    return f"{value / unit:.3g}{name}" if value < 999.5e6 else f"{value / 1e9:.3g}G"


def _hours(value: float) -> str:
    return f"{value:.2f}" if value < 99.995 else _count(value)


def _conclusions(made: dict[str, Any]) -> list[str]:
    total, pool = made["total"], made["total"]["with_pool"]
    at_least = "at least " if made["unknown"]["condition"] else ""
    by_class = ", ".join(f"{mark} {_hours(made['by_taken'][taken]['slot_hours'])}" for taken, mark in _MARKS.items())
    return [
        f"Slot-hours: {_hours(total['slot_hours'])} are held by sensors; with the pool it would have been "
        f"{_hours(pool['slot_hours'])}.",
        f"By class: {by_class} (+ the pool takes it by default, - it does not, ? that is not known; what is not + "
        "counts as it is).",
        f"Pokes: about {total['pokes']:,}, of which {at_least}{total['duplicate_pokes']:,} ask for what another one "
        f"asked; with the pool about {pool['pokes']:,}.",
        f"Starts of tasks: {total['starts']:,}; with the pool {pool['starts']:,}.",
        'The figures of the pool, and pokes in mode "poke", are estimates (docs/savings.md).',
    ]


def _notes(made: dict[str, Any]) -> list[tuple[int, str]]:
    """Return for how many tries something is not known, and what counts in its place."""
    unknown, modes = made["unknown"], made["modes"]
    interval = f"{made['assumptions']['poke_interval']:g} s counts (--poke-interval)"
    return [
        (unknown["condition"], "tries: Airflow does not keep what they wait for; they count as without duplicates"),
        (unknown["interval"], f'tries in mode "poke": Airflow does not keep their poke_interval; {interval}'),
        (
            unknown["starts"],
            "tries: the audit log has no starts of them; only their last start counts, and not whether they deferred",
        ),
        (modes["deferred"], "tries deferred by themselves: their polls are not recorded, and they stay as they are"),
        (modes["pooled"], "tries wait in a pool: left out"),
    ]
