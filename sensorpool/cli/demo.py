"""``sensorpool demo``."""

import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sensorpool.cli.output import json_option, print_fields
from sensorpool.instrumentation import logs


@click.command()
@click.option("--sensors", type=click.IntRange(min=1), default=1_000, show_default=True, help="Number of sensors.")
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=20, show_default=True, help="Time in which all conditions land."
)
@json_option
def demo(sensors: int, seconds: float, as_json: bool) -> None:
    """Run the pool on files, HTTP resources and SQL rows that land one by one.

    The exit code is 0 when each sensor settled exactly once.
    """
    from sensorpool.cli.demo_run import Demo
    from sensorpool.cli.demo_run import as_json as spell

    logs.configure("text", "ERROR")
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="sensorpool-demo-") as folder,
        Progress(*columns, console=console) as bars,
    ):
        run = Demo(Path(folder), sensors, seconds)
        landed = bars.add_task("conditions true", total=len(run.conditions))
        settled = bars.add_task("sensors settled", total=sensors)
        pokes = bars.add_task("pokes made", total=None)

        def progress(true_now: int, settled_now: int, pokes_now: int) -> None:
            bars.update(landed, completed=true_now)
            bars.update(settled, completed=settled_now)
            bars.update(pokes, completed=pokes_now)

        summary = run.run(progress)
    if as_json:
        click.echo(spell(summary))
    else:
        print_fields({name.replace("_", " "): value for name, value in summary.as_dict().items()})
        click.echo("every sensor was settled exactly once" if summary.is_clean else "NOT every sensor was settled once")
    sys.exit(0 if summary.is_clean else 1)
