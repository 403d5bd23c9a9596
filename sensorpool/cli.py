"""The ``sensorpool`` command. Exit codes: 0 done, 1 no (with the reason), 2 usage."""

import sys
from typing import Any

import click

from sensorpool import __version__
from sensorpool.commands.demo import demo
from sensorpool.commands.inspecting import config, health, list_command, quarantine, release, show, status
from sensorpool.commands.output import say
from sensorpool.commands.registering import cancel, register, wait
from sensorpool.commands.running import doctor, drain
from sensorpool.commands.serving import db, standalone
from sensorpool.errors import KeyConflict, Refused, SensorpoolError, SettingsError

DONE, NO, USAGE = 0, 1, 2


class _OneLine(click.Group):
    """Says each mistake in one line: what is wrong, and what mends it."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SensorpoolError as error:
            # settings have a line for each that is wrong; all else is one line, whatever its text quotes
            lines = str(error).splitlines() if isinstance(error, SettingsError) else [str(error)]
            for line in lines:
                say(f"sensorpool: {line}", err=True)
            is_usage = isinstance(error, Refused | SettingsError) and not isinstance(error, KeyConflict)
            ctx.exit(USAGE if is_usage else NO)
        except BrokenPipeError:  # the reader has seen enough
            sys.stderr.close()
            ctx.exit(NO)


@click.group(
    "sensorpool", cls=_OneLine, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="sensorpool")
def main() -> None:
    """Takes sensors off worker slots: register what you wait for, and be told when it lands."""


for _command in (
    register,
    status,
    show,
    list_command,
    cancel,
    wait,
    quarantine,
    release,
    health,
    config,
    db,
    demo,
    standalone,
    doctor,
    drain,
):
    main.add_command(_command)


celery_command = main  # `celery -A sensorpool sensorpool …`
