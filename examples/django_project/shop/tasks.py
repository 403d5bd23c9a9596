"""Tasks of the shop."""

from typing import Any

from celery import shared_task


@shared_task(name="shop.record")
def record(result: dict[str, Any], partner: str) -> None:
    """Record how the wait for a delivery ended."""
    from shop.models import Delivery

    Delivery.objects.create(partner=partner, state=result["state"])
