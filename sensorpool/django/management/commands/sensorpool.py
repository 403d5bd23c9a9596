"""``manage.py sensorpool …``: the command line, with the project's settings."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import click
from django.core.management.base import BaseCommand, CommandError

from sensorpool.cli.main import DONE, NO, main


class Command(BaseCommand):
    """Hands everything on to ``sensorpool``."""

    help = "Runs sensorpool with the settings of this project: manage.py sensorpool status"
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Take all arguments as they are: options too are those of ``sensorpool``, but for two of Django's."""
        sys.exit(main(args=_without_django(argv[2:]), prog_name=f"{argv[0]} {argv[1]}", standalone_mode=True))

    def add_arguments(self, parser: Any) -> None:
        """Take what ``call_command`` names, and its options from the first name on."""
        parser.add_argument("args", nargs=argparse.REMAINDER)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run it from code: ``call_command("sensorpool", "db", "upgrade")``.

        :raises CommandError: when its exit code is not 0; ``returncode`` is that code.
        """
        stdout, stderr = options.get("stdout") or sys.stdout, options.get("stderr") or sys.stderr
        with redirect_stdout(stdout), redirect_stderr(stderr):
            code = _run([str(each) for each in args])
        if code != DONE:
            raise CommandError(
                f"sensorpool {args[0]} ended with exit code {code}: its output says why", returncode=code
            )


def _run(arguments: list[str]) -> int:
    """Run ``sensorpool`` in this process; return its exit code.

    :raises CommandError: when it is used wrongly.
    :raises KeyboardInterrupt: when it is interrupted.
    """
    try:
        code = main(args=arguments, prog_name="sensorpool", standalone_mode=False)
    except click.ClickException as error:
        line = error.format_message().partition("\n")[0]  # without a command it is the whole help
        raise CommandError(line, returncode=error.exit_code) from None
    except click.Abort:  # Ctrl-C
        raise KeyboardInterrupt from None
    except SystemExit as ended:
        code = ended.code
    if code is None:
        return DONE
    return code if isinstance(code, int) else NO


def _without_django(arguments: Sequence[str]) -> list[str]:
    """Leave out the options that Django has applied."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--settings", "--pythonpath"):
        parser.add_argument(name)
    return parser.parse_known_args(arguments)[1]
