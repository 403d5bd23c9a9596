"""Tells a web address, or a Celery task, of a condition that is later than usual: the hook `on_late`."""

import json
import threading
from typing import Any

import httpx

from sensorpool.config.settings import Settings
from sensorpool.errors import Refused, SensorpoolError, Unreachable
from sensorpool.instrumentation.redaction import error_text, learn
from sensorpool.publish.callbacks import Callbacks

_STEP = 5.0  # seconds for each step of a request
PATIENCE = 10.0  # seconds for a request
_LONG = 8  # characters of a path that may have a secret in it


class LateHook:
    """The hook of the settings. Belongs to the thread of rescue."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.on_late_url
        self._task = settings.on_late_task
        self._callbacks = Callbacks(settings)
        self._request: _Request | None = None  # the last one
        if self._url:
            _hide(self._url)

    @property
    def is_set(self) -> bool:
        """Whether the settings name an address or a task."""
        return bool(self._url or self._task)

    def tell(self, late: dict[str, Any]) -> None:
        """Tell of one condition.

        :raises Unreachable: when the address or the broker does not answer in time.
        :raises Refused: when either does not take it, with the reason.
        """
        if self._url:
            self._post(late)
        else:
            self._send(late)

    def close(self) -> None:
        """Close the connection to the broker."""
        self._callbacks.close()

    def _post(self, late: dict[str, Any]) -> None:
        if self._request is not None and self._request.is_alive():
            raise Unreachable("the address of ON_LATE_URL has not ended its last answer yet")
        self._request = _Request(self._url, late)
        self._request.start()
        self._request.join(PATIENCE)
        if self._request.is_alive():
            raise Unreachable(f"the address of ON_LATE_URL gives no answer within {PATIENCE:g} s")
        if self._request.error is not None:
            raise self._request.error

    def _send(self, late: dict[str, Any]) -> None:
        try:
            self._callbacks.send_plain(self._task, late)
        except SensorpoolError as error:
            raise type(error)(f"the task of ON_LATE_TASK is not sent: {error}") from None


class _Request(threading.Thread):
    """One request. It has a thread, for a server that sends its answer byte by byte has no end of its own."""

    def __init__(self, url: str, late: dict[str, Any]) -> None:
        super().__init__(name="sensorpool-on-late", daemon=True)
        self._url = url
        self._late = late
        self.error: SensorpoolError | None = None

    def run(self) -> None:
        """Post the condition; the body of the answer is not read."""
        try:
            with httpx.stream("POST", self._url, json=self._late, timeout=_STEP, follow_redirects=False) as answer:
                if not answer.is_success:
                    status = answer.status_code
                    self.error = Refused(f"the address of ON_LATE_URL answers {status}: it takes no late conditions")
        except httpx.HTTPError as error:
            self.error = Unreachable(f"the address of ON_LATE_URL does not answer: {error_text(error)}")
        except Exception as error:
            self.error = Refused(f"ON_LATE_URL is no address that can be asked: {error_text(error)}")


def _hide(url: str) -> None:
    """Have the address hidden in all logs as httpx spells it, too; chat services have a secret in its path."""
    try:
        parsed = httpx.URL(url)
        with_query = parsed.raw_path.decode()
        spelt = [str(parsed), with_query, with_query.partition("?")[0]]
    except Exception:  # it cannot be asked, which `tell` says
        return
    for text in spelt:
        if len(text) >= _LONG:
            learn(json.dumps({"token": text}))
