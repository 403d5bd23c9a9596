"""``sensorpool demo``."""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sensorpool.cli.output import NumberRange, json_option, print_fields, print_json, say
from sensorpool.instrumentation import logs

if TYPE_CHECKING:
    from sensorpool.cli.demo_run import Demo, Summary
    from sensorpool.client.pool import Pool

_TOLD = ("reason", "condition", "waiting_since", "last_pokes")  # of what `sensorpool explain` says


@click.command()
@click.option("--sensors", type=click.IntRange(min=1), default=1_000, show_default=True, help="Number of sensors.")
@click.option(
    "--seconds", type=NumberRange(min=1), default=20, show_default=True, help="Time in which all conditions land."
)
@click.option("--web", "with_pages", is_flag=True, help="Open the pages of the pool, until you press Ctrl-C.")
@json_option
def demo(sensors: int, seconds: float, with_pages: bool, as_json: bool) -> None:
    """Run the pool on files, HTTP resources and SQL rows that land one by one; two sensors fail, and are explained.

    The exit code is 0 when each sensor settled exactly once.
    """
    from sensorpool.cli.demo_run import Demo

    logs.configure("text", "CRITICAL")  # a poke that fails is part of the story
    with tempfile.TemporaryDirectory(prefix="sensorpool-demo-") as folder, ExitStack() as stack:
        run = Demo(Path(folder), sensors, seconds)
        pool = stack.enter_context(run.running())
        if with_pages:
            from sensorpool.cli.web import open_pages

            stack.enter_context(open_pages(pool))
        if not as_json:
            _begin(run)
        _land(run)
        summary = run.sum_up()
        if as_json:
            print_json(summary.as_dict())
        else:
            _end(run, pool, summary)
        if with_pages:
            _wait()
    sys.exit(0 if summary.is_clean else 1)


def _begin(run: "Demo") -> None:
    kinds = "files, answers of an HTTP server, and rows of a table"
    say(f"{run.summary.sensors:,} sensors wait for {len(run.conditions):,} conditions: {kinds}.")
    say(f"Each by itself, they would hold {run.summary.sensors:,} worker slots. In the pool they hold 0.")


def _land(run: "Demo") -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        landed = bars.add_task("conditions come true", total=len(run.conditions) + len(run.failing))
        ended = bars.add_task("sensors end", total=run.summary.sensors + len(run.failing))
        pokes = bars.add_task("pokes made", total=None)

        def progress(true_now: int, ended_now: int, pokes_now: int) -> None:
            bars.update(landed, completed=true_now)
            bars.update(ended, completed=ended_now)
            bars.update(pokes, completed=pokes_now)

        run.land(progress)


def _end(run: "Demo", pool: "Pool", summary: "Summary") -> None:
    from sensorpool.admin.explain import explain

    made, saved = summary.pokes, summary.pokes_saved
    say(
        f"{summary.settled:,} landed. {made:,} pokes did the work of {made + saved:,}: "
        f"sharing saved {summary.saved:.0%}."
    )
    say(f"{summary.failed} failed, as they had to. `sensorpool explain` says why:")
    for condition in run.failing:
        found = explain(pool, condition.instances[0])
        say()
        say(f"{found['who']}. {found['why']}")
        print_fields({name.replace("_", " "): found[name] for name in _TOLD if found.get(name)})
    say()
    print_fields({name.replace("_", " "): value for name, value in summary.as_dict().items()})
    say("every sensor was settled exactly once" if summary.is_clean else "NOT every sensor was settled once")


def _wait() -> None:
    """Wait for Ctrl-C."""
    import threading

    say("The pages stay until you press Ctrl-C.", err=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return
