"""The shop's application."""

import os

from celery import Celery

app = Celery("shop", broker=os.environ.get("SHOP_BROKER_URL", "memory://"), backend=os.environ.get("SHOP_BROKER_URL"))
app.conf.update(
    include=["shop.tasks", "sensorpool.canvas"],  # the second one has the step that waits in the pool
    task_default_queue="shop",
    task_serializer="json",
    accept_content=["json"],
)
