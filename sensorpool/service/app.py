"""The Celery application: ``celery -A sensorpool worker``, ``beat`` and ``flower``. This module only builds it.

Celery settings come from the package (with a reason each, below), and then from an `overlay`.
"""

import os
import sys
import time
from functools import cache
from typing import Any

from celery import Celery
from celery.beat import BeatLazyFunc
from celery.schedules import schedule as every

from sensorpool.config.settings import Settings
from sensorpool.errors import SettingsError
from sensorpool.model.values import shard_ranges
from sensorpool.publish import overlay, wire
from sensorpool.publish.application import Application, celery_settings
from sensorpool.service import signals  # noqa: F401  # connects them
from sensorpool.service.refusals import give_up
from sensorpool.service.runtime import Runtime
from sensorpool.service.tasks import add_tasks


def make_app(settings: Settings) -> Celery:
    """Build the application for these settings.

    :raises SettingsError: when the overlay cannot be read, or sets what must be the same in all processes.
    """
    laid_over = overlay.read()
    made = Application("sensorpool", laid_over.over(worker_settings(settings) | {"beat_schedule": schedule(settings)}))
    made.sensorpool_overlay = laid_over
    runtime = Runtime(settings)
    add_tasks(made, runtime)
    made.sensorpool_runtime = runtime
    return made


def worker_settings(settings: Settings) -> dict[str, Any]:
    """Return the Celery settings of workers and beat, with a reason each."""
    return celery_settings(settings) | {
        # prefork: only there time limits work, and a child can be killed
        "worker_pool": "prefork",
        # outlives messages that are no jobs
        "worker_consumer": "sensorpool.service.celery_patches:SturdyConsumer",
        # a job in a child's buffer waits for that child; a job in the queue goes to any free one
        "worker_prefetch_multiplier": 1,
        "worker_disable_prefetch": wire.is_redis(settings.broker),
        # recovery is the next tick and the lease, never redelivery: a poison job would loop for ever
        "task_acks_late": False,
        "task_reject_on_worker_lost": False,
        # sensors are the code of users: their leaks end with the child
        "worker_max_tasks_per_child": 10_000,
        "worker_max_memory_per_child": settings.poke_memory * 1024 // 2,  # KB; before its pokes run out of it
        "worker_soft_shutdown_timeout": 10,
        # a broker that refuses commands for a while (a Redis that is read-only or out of memory) is connected to again
        "broker_channel_error_retry": True,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        # who may send commands over the broker could stop workers; Flower shows all tasks without it
        "worker_enable_remote_control": False,
        # Flower needs these events
        "worker_send_task_events": True,
        "task_send_sent_event": True,
        "worker_hijack_root_logger": False,
        # it has no shelve file: after a start all entries are due at once, which is harmless
        "beat_scheduler": "sensorpool.service.beat:Ticks",
        # beat knows when the next entry is due; each look costs an idle process milliseconds of CPU
        "beat_max_loop_interval": 5,
    }


def schedule(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return beat's schedule: one entry for each shard range, and rescue."""
    entries: dict[str, dict[str, Any]] = {}
    for shard_range in shard_ranges(settings.shards, settings.shard_code_upper_limit):
        options = wire.shard_message(shard_range, wire.queue_of(settings))
        arguments = options.pop("args")
        entries[wire.entry_of(shard_range)] = {
            "task": wire.POKE_SHARD,
            "schedule": every(settings.tick),
            "args": arguments,
            "kwargs": {"tick": BeatLazyFunc(_tick_number, settings.tick)},
            "options": options,
        }
    entries["rescue"] = {
        "task": wire.RESCUE,
        "schedule": every(settings.rescue_interval),
        "options": {"queue": wire.queue_of(settings)},
    }
    return entries


def _tick_number(tick: float) -> int:
    """Return the number of the tick, for people; nothing depends on it."""
    return int(time.time() / tick)


@cache
def _build() -> Celery:
    """Build the application from the environment. On an error, the celery command prints one line, no traceback."""
    try:
        return make_app(Settings.load())
    except SettingsError as error:
        if _is_celery(sys.argv[0]):
            give_up(error)
        raise


def _is_celery(command: str) -> bool:
    """Whether this is the ``celery`` command, or ``python -m celery``."""
    folder, name = os.path.split(command)
    return name in {"celery", "celery.exe"} or (name == "__main__.py" and os.path.basename(folder) == "celery")


def __getattr__(name: str) -> Any:
    """Build ``app`` at its first use (PEP 562): the import of this module does nothing."""
    if name == "app":
        return _build()
    raise AttributeError(f"module 'sensorpool.service.app' has no attribute {name!r}")
