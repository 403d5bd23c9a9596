"""``sensorpool health``. With ``--self`` it imports next to nothing, because a probe runs it every few seconds."""

import sys
from pathlib import Path

import click

from sensorpool.cli.output import json_option, print_json, say, say_unknown_settings


@click.command()
@click.option(
    "--self",
    "alone",
    is_flag=True,
    help="Look only at the workers and beats of this user on this host (or in this container).",
)
@click.option(
    "--within",
    type=click.FloatRange(min=1),
    default=60,
    show_default=True,
    help="With --self: seconds without a sign of life after which a process counts as stuck; 10 at least.",
)
@click.option(
    "--pidfile",
    type=click.Path(path_type=Path),
    help="With --self: look only at the process of this pid file (the --pidfile of its worker or beat).",
)
@json_option
def health(alone: bool, within: float, pidfile: Path | None, as_json: bool) -> None:
    """Say whether the pool works. If not, say why, and exit with 1.

    With --self, say whether the processes of this host work, whatever the servers do: for a probe that restarts them.
    """
    if pidfile is not None and not alone:
        raise click.UsageError("--pidfile goes with --self")
    problems = _problems_here(within, pidfile) if alone else _problems()
    if as_json:
        print_json({"healthy": not problems, "problems": problems})
    else:
        for problem in problems or ["healthy"]:
            say(problem)
    sys.exit(1 if problems else 0)


def _problems_here(within: float, pidfile: Path | None) -> list[str]:
    from sensorpool.instrumentation import alive

    return alive.problems(max(within, alive.SHORTEST), pidfile)


def _problems() -> list[str]:
    from sensorpool.admin import findings
    from sensorpool.client.pool_view import PoolView

    say_unknown_settings()
    return findings.health(PoolView.to_look_at())
