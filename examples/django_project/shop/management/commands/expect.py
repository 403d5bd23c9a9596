"""``manage.py expect PARTNER PATH``: have a delivery recorded when its file comes."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

import sensorpool
from shop.celery import app  # noqa: F401  # the tasks below are its tasks
from shop.tasks import record


class Command(BaseCommand):
    """Registers the wait."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Take a partner and a path."""
        parser.add_argument("partner")
        parser.add_argument("path", type=Path)

    def handle(self, *args: Any, **options: Any) -> None:
        """Register."""
        instance = sensorpool.register(
            options["path"],
            poke_interval=1,
            timeout=3_600,
            on_settled=record.s(partner=options["partner"]),
        )
        self.stdout.write(f"instance {instance.id} waits for {options['path']}")
