"""The threads of a triggerer on which sensors are rendered and built.

A template may ask a secrets backend that is slow, or that hangs: its thread then does nothing else. So a sensor that
has waited for a thread for some seconds gets a further one, up to a limit.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from sensorpool.airflow.errors import NotPoolable
from sensorpool.instrumentation.redaction import error_text

AT_FIRST = 4
AT_MOST = 32
PATIENCE = 3.0  # seconds that a sensor waits for a thread before there is a further one
_KEPT = 60.0  # seconds that a further thread waits for work


class Renderers:
    """Some threads. They are daemons: one that waits for an answer holds up no end of a process.

    That is why no executor has them: Python waits for an executor's threads when a process ends.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._number = 0
        self._lock = threading.Lock()
        for _ in range(AT_FIRST):
            self._start(None)

    async def run(self, call: Callable[[], Any]) -> Any:
        """Return what a call returns on one of the threads.

        :raises NotPoolable: for what ends a process or a thread.
        :raises Exception: whatever the call raises.
        """
        answer: Future[Any] = Future()
        self._asked.put((call, answer))
        waiting = asyncio.wrap_future(answer)
        try:
            while not (await asyncio.wait({waiting}, timeout=PATIENCE))[0]:
                if not answer.running():
                    self._start(_KEPT)
            return waiting.result()
        finally:
            waiting.cancel()

    def _start(self, kept: float | None) -> None:
        with self._lock:
            if self._number == AT_MOST:
                return
            self._number += 1
            name = f"sensorpool-start-{self._name}-{self._number}"
        threading.Thread(target=self._work, args=(kept,), name=name, daemon=True).start()

    def _work(self, kept: float | None) -> None:
        while True:
            try:
                call, answer = self._asked.get(timeout=kept)
            except queue.Empty:
                with self._lock:
                    self._number -= 1
                return
            if not answer.set_running_or_notify_cancel():
                continue  # its trigger has left
            try:
                answer.set_result(call())
            except BaseException as error:  # a template or a class may raise anything
                answer.set_exception(
                    error if isinstance(error, Exception) else NotPoolable(error_text(error), "rendering")
                )
