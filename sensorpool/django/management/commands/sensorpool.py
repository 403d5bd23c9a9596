"""``manage.py sensorpool …``: the command line, with the project's settings."""

import sys
from typing import Any

from django.core.management.base import BaseCommand

from sensorpool.cli.main import main


class Command(BaseCommand):
    """Hands everything on to ``sensorpool``."""

    help = "Runs sensorpool with the settings of this project: manage.py sensorpool status"
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Take all arguments as they are: options too are those of ``sensorpool``."""
        sys.exit(main(args=argv[2:], prog_name=f"{argv[0]} {argv[1]}", standalone_mode=True))

    def add_arguments(self, parser: Any) -> None:
        """Take what ``call_command`` names."""
        parser.add_argument("args", nargs="*")

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002  # Django's signature
        """Run it from code: ``call_command("sensorpool", "db", "upgrade")``."""
        main(args=[str(each) for each in args], prog_name="sensorpool", standalone_mode=False)
