"""``sensorpool doctor`` and ``drain``."""

import math
import sys
from dataclasses import asdict
from itertools import chain

import click
from rich.console import Console
from rich.progress import Progress

from sensorpool.cli.output import json_option, print_json, say
from sensorpool.client.pool import Pool
from sensorpool.leases.state_file import take_up
from sensorpool.model.states import State

_MARKS = {"ok": "ok     ", "warning": "WARNING", "wrong": "WRONG  "}


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check this installation, a line for each point. The exit code is 1 when something is wrong."""
    from sensorpool.admin.doctor import examine, load

    settings, wrong, without = load()
    findings = []
    if settings is not None:
        take_up(settings)
    for finding in chain(wrong, examine(settings, without) if settings is not None else ()):
        findings.append(finding)
        if not as_json:
            say(f"{_MARKS[finding.level]}  {finding.subject}: {finding.said}")
    if as_json:
        print_json([{name: value for name, value in asdict(each).items() if value != ()} for each in findings])
    sys.exit(1 if any(finding.level == "wrong" for finding in findings) else 0)


@click.command()
@click.option("--rate", type=click.FloatRange(min=0.1), default=20, show_default=True, help="Tasks a second.")
@json_option
def drain(rate: float, as_json: bool) -> None:
    """Hand Airflow's waiting tasks back: they go on natively.

    Set [sensorpool] enabled = False first, or new tasks come meanwhile.
    """
    if not math.isfinite(rate):
        raise click.BadParameter(f"{rate} is no number of waiters", param_hint="--rate")
    from sensorpool.admin import drain as draining
    from sensorpool.store import inspecting

    pool = Pool()
    waiting = pool.database.read(inspecting.count_by_state).get(State.SENSING, 0)
    done = 0
    with Progress(console=Console(stderr=True), disable=as_json) as bars:
        bar = bars.add_task("handed back", total=waiting)
        for count in draining.drain(pool, rate):
            done += count
            bars.update(bar, completed=done)
    left = pool.database.read(inspecting.count_by_state).get(State.SENSING, 0)
    pool.close()
    if as_json:
        print_json({"handed_back": done, "sensing": left})
    else:
        click.echo(f"{done} handed back; {left} still wait here")
