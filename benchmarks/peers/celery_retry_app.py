"""The Celery application of celery_retry.py."""

import os
from typing import Any

from celery import Celery

app = Celery("peer", broker=os.environ.get("PEER_BROKER"))
app.conf.update(
    result_backend=None,
    task_ignore_result=True,
    broker_transport_options={"visibility_timeout": 86_400},  # far longer than a countdown, as Celery's manual requires
    broker_connection_retry_on_startup=True,
    worker_disable_rate_limits=True,
    worker_send_task_events=False,
)
_record = -1


@app.task(bind=True, max_retries=None)
def wait_for(self: Any, path: str, interval: float) -> None:
    """Look for the file, and count the look; retry later."""
    global _record
    if _record < 0:
        _record = os.open(os.environ["PEER_POKES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(_record, b".")
    if not os.path.exists(path):
        raise self.retry(countdown=interval)
