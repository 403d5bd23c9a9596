"""A patch of the triggerer: its supervisor reads what the triggers write until there is no more.

Airflow's supervisor reads at most 4 KB of log lines in a round, which are ten lines, and with 10,000 triggers a round
takes most of a second. When the pipe between them is full, the triggers stand still, all of them, with their events.
"""

import functools
import logging
import time
from collections.abc import Callable
from inspect import signature
from typing import Any

_SPAN = 0.5  # seconds of a round: the supervisor has a heartbeat to write, and events to store
_PATCHED = "_sensorpool_service_subprocess"

log = logging.getLogger(__name__)


def install(module: Any) -> None:
    """Patch the triggerer's supervisor, whose module has just been imported; an error leaves it as it is."""
    try:
        supervisor = module.TriggerRunnerSupervisor
        if not hasattr(supervisor, _PATCHED):
            native = supervisor._service_subprocess
            supervisor._service_subprocess = _reading_on(native)
            setattr(supervisor, _PATCHED, native)
    except Exception as error:
        log.warning("sensorpool: the triggerer reads few log lines a round: %s: %s", type(error).__name__, error)


def _reading_on(native: Callable[..., Any]) -> Callable[..., Any]:
    if "max_wait_time" not in signature(native).parameters:
        raise TypeError("its _service_subprocess takes no max_wait_time")

    @functools.wraps(native)
    def service_subprocess(supervisor: Any, max_wait_time: float, *arguments: Any, **named: Any) -> Any:
        exit_code = native(supervisor, max_wait_time, *arguments, **named)
        ends, selector = time.monotonic() + _SPAN, getattr(supervisor, "selector", None)
        while exit_code is None and selector is not None and time.monotonic() < ends and selector.select(0):
            exit_code = native(supervisor, 0.0, *arguments, **named)
        return exit_code

    return service_subprocess
