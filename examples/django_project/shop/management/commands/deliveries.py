"""``manage.py deliveries``: list what has been delivered."""

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from shop.models import Delivery


class Command(BaseCommand):
    """Lists the rows."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the seconds to wait for the first row."""
        parser.add_argument("--wait", type=float, default=0)

    def handle(self, *args: Any, **options: Any) -> None:
        """List them."""
        until = time.monotonic() + options["wait"]
        while not Delivery.objects.exists() and time.monotonic() < until:
            time.sleep(0.2)
        for each in Delivery.objects.order_by("id"):
            self.stdout.write(f"{each.partner}: {each.state}")
