"""The ``sensorpool`` command. Exit codes: 0 done, 1 not done (the reason is printed), 2 wrong usage."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from sensorpool.cli.output import say, say_unknown_settings
from sensorpool.config import __version__
from sensorpool.errors import KeyConflict, Refused, SensorpoolError, SettingsError
from sensorpool.instrumentation.logs import BriefFormatter
from sensorpool.instrumentation.redaction import one_line

DONE, NO, USAGE = 0, 1, 2
_TELLS_ALL = "SENSORPOOL_LOG_LEVEL"

_MODULES = {
    "health": "health",
    "inspecting": "callbacks config explain list quarantine release show status",
    "operating": "doctor drain try",
    "registering": "cancel register wait wake",
    "savings": "savings",
    "serving": "db standalone web",
}
# Each command's module is imported at the command's use, because some commands must be quick.
_HOMES = {command: module for module, commands in _MODULES.items() for command in commands.split()}
# these look for settings that do not exist by themselves; `health --self` reads no settings, because it must be quick
_THEIR_OWN = frozenset({"doctor", "health", "standalone"})
_NAMES_OF_PYTHON = frozenset({"list", "try"})


class _OneLine(click.Group):
    """A group of commands that prints each error in one line, with its mend."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _HOMES:
            return None
        home = import_module(f"sensorpool.cli.{_HOMES[cmd_name]}")
        found: click.Command = getattr(home, f"{cmd_name}_command" if cmd_name in _NAMES_OF_PYTHON else cmd_name)
        return found

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if logging.lastResort is not None:  # what prints warnings where no logging is configured
            logging.lastResort.setFormatter(BriefFormatter())
        with _one_line_errors():  # --help and --version print here
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _one_line_errors():
            return super().invoke(ctx)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Print the error of what is done here in one line, and end with its exit code."""
    try:
        yield
    except SensorpoolError as error:
        # an error of settings has a line for each wrong one; any other error is one line, whatever its text quotes
        lines = str(error).splitlines() if isinstance(error, SettingsError) else [str(error)]
        for line in lines:
            say(f"sensorpool: {line}", err=True)
        is_usage = isinstance(error, Refused | SettingsError) and not isinstance(error, KeyConflict)
        raise click.exceptions.Exit(USAGE if is_usage else NO) from None
    except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
        raise
    except Exception as error:
        if os.environ.get(_TELLS_ALL) == "DEBUG":
            raise
        say(f"sensorpool: {one_line(error)} ({_TELLS_ALL}=DEBUG shows where)", err=True)
        raise click.exceptions.Exit(NO) from None


@click.group(
    "sensorpool",
    cls=_OneLine,
    commands=dict.fromkeys(_HOMES, click.Command(None)),  # their names, for help and for what was most likely meant
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="sensorpool")
@click.pass_context
def main(context: click.Context) -> None:
    """Takes sensors off worker slots: register what you wait for, and be told when it lands."""
    if context.invoked_subcommand not in _THEIR_OWN:
        say_unknown_settings()


celery_command = main  # `celery -A sensorpool sensorpool …`
