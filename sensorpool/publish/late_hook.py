"""Tells a web address, and a Celery task, of a condition that is later than usual: the hook `on_late`."""

from typing import Any

import httpx

from sensorpool.config.settings import Settings
from sensorpool.errors import Refused, SensorpoolError, Unreachable
from sensorpool.instrumentation.redaction import error_text
from sensorpool.publish.callbacks import Callbacks

_PATIENCE = 5.0  # seconds for each step of a request


class LateHook:
    """The hook of the settings. Belongs to the thread of rescue."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.on_late_url
        self._task = settings.on_late_task
        self._callbacks = Callbacks(settings)

    @property
    def is_set(self) -> bool:
        """Whether the settings name an address or a task."""
        return bool(self._url or self._task)

    def tell(self, late: dict[str, Any]) -> None:
        """Tell of one condition. If the address took it and the task was not sent, both are told again.

        :raises Unreachable: when the address or the broker does not answer.
        :raises Refused: when either does not take it, with the reason.
        """
        if self._url:
            _post(self._url, late)
        if self._task:
            try:
                self._callbacks.send_plain(self._task, late)
            except SensorpoolError as error:
                raise type(error)(f"the task of ON_LATE_TASK is not sent: {error}") from None

    def close(self) -> None:
        """Close the connection to the broker."""
        self._callbacks.close()


def _post(url: str, late: dict[str, Any]) -> None:
    try:
        answer = httpx.post(url, json=late, timeout=_PATIENCE, follow_redirects=False)
    except httpx.HTTPError as error:
        raise Unreachable(f"the address of ON_LATE_URL does not answer: {error_text(error)}") from None
    except (httpx.InvalidURL, ValueError) as error:
        raise Refused(f"ON_LATE_URL is no address that can be asked: {error_text(error)}") from None
    if not answer.is_success:
        raise Refused(f"the address of ON_LATE_URL answers {answer.status_code}: it takes no late conditions")
