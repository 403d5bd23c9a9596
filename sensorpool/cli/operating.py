"""``sensorpool doctor``, ``drain`` and ``try``."""

import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict

import click
from rich.console import Console
from rich.progress import Progress

from sensorpool.admin.look import Finding
from sensorpool.cli.output import json_option, print_json, say
from sensorpool.client.pool import Pool
from sensorpool.config.settings import Settings
from sensorpool.errors import SettingsError
from sensorpool.leases.standalone_files import take_up
from sensorpool.model.identity import parse_context
from sensorpool.model.states import Outcome, State

_MARKS = {"ok": "ok     ", "warning": "WARNING", "wrong": "WRONG  "}


@click.command()
@click.option("--short", is_flag=True, help="Only warnings, and what is wrong.")
@json_option
def doctor(short: bool, as_json: bool) -> None:
    """Check this installation, a line for each point. The exit code is 1 when something is wrong."""
    from sensorpool.admin import findings

    found: list[Finding] = []
    try:
        settings = Settings.load()
        take_up(settings)
        looked_at: Iterable[Finding] = findings.doctor(settings)
    except SettingsError as error:
        looked_at = [Finding("settings", "wrong", line) for line in str(error).splitlines()]
    for finding in looked_at:
        if short and finding.level == "ok":
            continue
        found.append(finding)
        if not as_json:
            say(f"{_MARKS[finding.level]}  {finding.subject}: {finding.said}")
    levels = Counter(each.level for each in found)
    if as_json:
        names = ("subject", "level", "said")
        print_json(
            [{name: getattr(each, name) for name in (*names, *(["classes"] if each.classes else []))} for each in found]
        )
    elif not levels["wrong"] and not levels["warning"]:
        say("all is in order")
    else:
        mend = "" if short else ": `sensorpool doctor --short` shows them alone"
        say(f"{levels['wrong']} wrong, {levels['warning']} to be looked at{mend}")
    sys.exit(1 if levels["wrong"] else 0)


@click.command()
@click.option("--rate", type=click.FloatRange(min=0.1), default=20, show_default=True, help="Tasks a second.")
@json_option
def drain(rate: float, as_json: bool) -> None:
    """Hand Airflow's waiting tasks back: they go on natively.

    Set [sensorpool] enabled = False first, or new tasks come meanwhile.
    """
    from sensorpool.admin import actions
    from sensorpool.store import inspecting

    pool = Pool()
    waiting = pool.database.read(inspecting.count_by_state).get(State.SENSING, 0)
    done = 0
    with Progress(console=Console(stderr=True), disable=as_json) as bars:
        bar = bars.add_task("handed back", total=waiting)
        for count in actions.drain(pool, rate):
            done += count
            bars.update(bar, completed=done)
    left = pool.database.read(inspecting.count_by_state).get(State.SENSING, 0)
    pool.close()
    if as_json:
        print_json({"handed_back": done, "sensing": left})
    else:
        say(f"{done} handed back; {left} still wait here")


@click.command("try")
@click.argument("sensor_class", metavar="CLASS")
@click.argument("context_json", metavar="[CONTEXT_JSON]", default="{}")
@json_option
def try_command(sensor_class: str, context_json: str, as_json: bool) -> None:
    """Poke an enabled CLASS once, here and now, and print what the pool would see.

    Nothing is registered. What the poke prints goes to standard error. An error comes with its traceback. The exit code
    is 0 if the poke answered, landed or not.
    """
    from sensorpool.admin.one_poke import poke_once

    settings = Settings.load()
    context = parse_context(context_json)
    tried = poke_once(settings, sensor_class, context)
    if as_json:
        print_json(asdict(tried))
    else:
        for line in (tried.traceback or "").splitlines():
            say(line)
        said = [f"{tried.outcome.replace('_', ' ')} after {tried.seconds:.3g} s", tried.reason]
        if tried.xcom_value is not None:
            said.append(f"XCom: {json.dumps(tried.xcom_value, ensure_ascii=False)}")
        say(": ".join(each for each in said if each))
        if tried.seconds > settings.poke_timeout:
            say(f"in the pool it would overrun: a poke may take {settings.poke_timeout:g} s there", err=True)
    sys.exit(0 if tried.outcome in {Outcome.LANDED, Outcome.NOT_LANDED} else 1)
