"""Measure the peers one after the other, and the pool on the same load.

python -m benchmarks.peers                                   all of them, 10,000 sensors, 40 % duplicates
python -m benchmarks.peers --only celery --size 200 --seconds 20
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.code_version import code_version
from benchmarks.peers import airflow3, apscheduler3, celery_retry, ours, smart_sensor
from benchmarks.peers.window import Result
from benchmarks.stage import write_json

RESULTS = Path(__file__).parents[1] / "results" / "peers.json"
OURS = "sensorpool"
PEERS: dict[str, Callable[[int, float], Result]] = {
    OURS: ours.measure,
    "sensorpool-60": ours.measure_60,
    "smart-sensor": smart_sensor.measure,
    "celery": celery_retry.measure,
    "apscheduler": apscheduler3.measure,
    "airflow-reschedule": airflow3.reschedule,
    "airflow-file": airflow3.deferrable_file,
    "airflow-external": airflow3.deferrable_external,
}


def table(found: dict[str, Result]) -> Table:
    """Return the figures of all peers, each with its ratio to ours."""
    shown = Table(title="CPU of all processes of each peer; the ratio is of the CPU per unique poke")
    for name in ("peer", "version"):
        shown.add_column(name)
    for name in (
        "sensors",
        "every s",
        "pokes",
        "CPU s",
        "µs/poke",
        "µs/unique poke",
        "ratio",
        "MiB",
        "tx/sensor-minute",
    ):
        shown.add_column(name, justify="right")
    base = found.get(OURS, {}).get("cpu_us_per_unique_poke")
    for each in found.values():
        transactions = each.get("db_transactions_per_sensor_minute")
        shown.add_row(
            each["peer"],
            each["version"],
            f"{each['sensors']:,}{' *' if each['extrapolated'] else ''}",
            f"{each['interval_s']:g}",
            f"{each['pokes']:,}",
            f"{sum(each['cpu_s'].values()):.2f}",
            f"{each['cpu_us_per_poke']:,.0f}",
            f"{each['cpu_us_per_unique_poke']:,.0f}",
            f"{each['cpu_us_per_unique_poke'] / base:.2f}" if base else "",
            f"{each['memory_bytes'] / 2**20:,.0f}",
            "" if transactions is None else f"{transactions:.3f}",
        )
    shown.caption = "* fewer than asked for: figures per poke of those"
    return shown


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(PEERS)), help="May be given more than once.")
@click.option("--size", default=10_000, type=click.IntRange(min=5), show_default=True, help="Sensors.")
@click.option("--seconds", default=60.0, type=click.FloatRange(min=10), show_default=True, help="Window, at least.")
@click.option(
    "--results", default=RESULTS, type=click.Path(path_type=Path), show_default="benchmarks/results/peers.json"
)
@click.option("--go-on", is_flag=True, help="Leave out what was measured already, of the same commit.")
def main(only: tuple[str, ...], size: int, seconds: float, results: Path, go_on: bool) -> None:
    """Measure what users have today beside the pool."""
    console = Console(width=160)
    known = json.loads(results.read_text()) if (only or go_on) and results.exists() else {}
    found: dict[str, Result] = {}
    failed, code = [], code_version()
    asked = {"code": code, "size": size, "seconds": seconds}
    measured = {name for name, each in known.items() if go_on and code is not None and each.get("asked") == asked}
    if not only:  # figures of other code do not stand beside new ones
        known = {name: known[name] for name in measured}
    for name in only or PEERS:
        if name in measured:
            click.echo(f"{name}: measured already", err=True)
            found[name] = known[name]
            continue
        click.echo(f"{name} …", err=True)
        try:
            found[name] = PEERS[name](size, seconds) | {"asked": asked}
        except (RuntimeError, AssertionError, OSError, subprocess.CalledProcessError) as error:
            click.echo(f"{name} could not be measured: {error}", err=True)
            failed.append(name)
            continue
        write_json(results, known | found)
    console.print(table(found))
    for each in found.values():
        console.print(f"{each['peer']}: {each['note']}", soft_wrap=True, highlight=False)
    if failed:
        raise click.ClickException(f"not measured: {', '.join(failed)}")


if __name__ == "__main__":
    main()
