"""Receivers of Celery's signals, from the start of a worker or of beat to the end of a child."""

import contextlib
import gc
import logging
import math
import os
import socket
import sys
from typing import Any

import click
from billiard import current_process
from celery import Celery, current_app, signals
from celery.utils.nodenames import node_format
from click.core import ParameterSource

from sensorpool.config import __version__
from sensorpool.config.origins import unknown_settings
from sensorpool.config.settings import Settings
from sensorpool.errors import SensorpoolError, SettingsError
from sensorpool.instrumentation import alive, logs
from sensorpool.leases.lease import leases_of
from sensorpool.leases.roster import Roster
from sensorpool.poke.patches import refuse_patched
from sensorpool.poke.process_bounds import BoundedOutput, limit_memory
from sensorpool.publish import wire
from sensorpool.publish.application import ignored_variables
from sensorpool.service.celery_patches import replace_worn_children
from sensorpool.service.dead_children import DeadChildren, free_lease
from sensorpool.service.metrics_port import Observation
from sensorpool.service.presence import Presence, terms_of
from sensorpool.service.refusals import (
    give_up,
    refuse_cluster,
    refuse_memory,
    refuse_pool,
)
from sensorpool.service.runtime import Runtime
from sensorpool.service.sqlite_lock import SqliteLock
from sensorpool.store import migrate
from sensorpool.store.database import Database
from sensorpool.worker import metrics

log = logs.logger(__name__)


def _runtime_of(sender: Any) -> Runtime | None:
    """Return the runtime of a signal's sender; None if its application is not ours."""
    return getattr(getattr(sender, "app", None), "sensorpool_runtime", None)


def _current_runtime() -> Runtime | None:
    """Return the runtime of this process's application; None if it is not ours."""
    return getattr(current_app._get_current_object(), "sensorpool_runtime", None)


@signals.celeryd_init.connect
def _on_worker_start(sender: Any = None, instance: Any = None, conf: Any = None, options: Any = None, **_: Any) -> None:
    """Refuse to start where the worker could not work, with one line that names the mend."""
    runtime = _runtime_of(instance)
    if runtime is None:
        return
    settings = runtime.settings
    try:
        refuse_pool(options.get("pool") or options.get("pool_cls") or conf.worker_pool)
        refuse_memory(settings)
        refuse_patched()
        database = Database.of(settings)
        migrate.check(database, __version__)
        runtime.sqlite_lock = SqliteLock(settings, database)
        refuse_cluster(settings)
        terms = terms_of(settings, database)
        database.dispose()
        leases = leases_of(settings)
        runtime.presence = Presence(settings, Roster(leases), f"{sender}/{os.getpid()}", terms, __version__)
        runtime.presence.enter()
    except SensorpoolError as error:
        give_up(error, _log_file(options.get("logfile"), sender), settings.log_format)
    policy = runtime.worker.leases.store.eviction_policy()
    if policy not in {None, "noeviction"}:
        event = "Redis may evict leases and jobs: set maxmemory-policy to noeviction"
        runtime.doubts.append((event, {"policy": str(policy)}))
    runtime.doubts += [("there is no such setting", {"setting": name}) for name in unknown_settings()]
    runtime.doubts += [(said, {}) for said in _say_overlay(instance.app) + ignored_variables(settings)]
    if settings.metrics_port is not None:
        try:
            metrics.prepare()
            runtime.metrics.start()
        except OSError as error:
            runtime.doubts.append(("no metrics are counted: no place for their files", {"error": str(error)}))
    runtime.close()
    _show_life(sender)


@signals.worker_init.connect
def _on_worker_made(sender: Any = None, **_: Any) -> None:
    runtime = _runtime_of(sender)
    if runtime is not None:
        runtime.begin_child = replace_worn_children(sender)


@signals.beat_init.connect
def _on_beat_start(sender: Any = None, **_: Any) -> None:
    runtime = _runtime_of(sender)
    if runtime is not None and not runtime.is_one_process:
        # beat sets no current application, so `_on_logging` does not find one
        _adopt_logging(logging.getLogger(), runtime.settings)
        try:
            refuse_memory(runtime.settings)
        except SettingsError as error:
            handlers = logging.getLogger().handlers
            files = [each.baseFilename for each in handlers if isinstance(each, logging.FileHandler)]
            give_up(error, files, runtime.settings.log_format)
        for said in _say_overlay(sender.app) + ignored_variables(runtime.settings):
            log.warning(said)
        _show_life(f"beat@{socket.gethostname()}")
        alive.keep()


def _say_overlay(app: Celery) -> list[str]:
    """Print the source of the Celery settings beside Celery's banner, because the log level may hide log lines.

    :returns: a line to log for each name that is no setting of Celery.
    """
    if sys.__stdout__ is not None:
        print(f"sensorpool: {app.sensorpool_overlay}", file=sys.__stdout__, flush=True)
    unknown: list[str] = app.sensorpool_overlay.unknown()
    return unknown


def _log_file(path: str | None, node: str) -> list[str]:
    """Return the log file of a worker, if it has one: Celery sets its logging up later."""
    return [node_format(path, node)] if isinstance(path, str) else []


def _show_life(name: str) -> None:
    logs.name_process(name)
    try:
        alive.begin(name)
    except OSError as error:
        log.warning("no signs of life for `sensorpool health --self`: set TMPDIR", error=str(error))


@signals.worker_ready.connect
def _on_worker_ready(sender: Any = None, **_: Any) -> None:
    runtime = _runtime_of(sender)
    if runtime is None:
        return
    if runtime.presence is not None:
        runtime.presence.queues = lambda: list(sender.app.amqp.queues.consume_from)
        runtime.presence.keep()
    if (children := getattr(sender.pool, "_pool", None)) is not None:
        runtime.look_at_children = DeadChildren(runtime, _hostname, children).look
    if runtime.settings.metrics_port is not None and runtime.presence is not None and runtime.observation is None:
        ending = runtime.stopping.is_set
        runtime.observation = Observation(runtime.settings, runtime.metrics, runtime.presence, sender, ending)
        runtime.observation.begin()


@signals.worker_shutting_down.connect
def _on_worker_told_to_end(**_: Any) -> None:
    runtime = _current_runtime()
    if runtime is not None:
        runtime.stopping.set()
    alive.come_round(until=math.inf)  # the worker waits for its jobs; the operator who ended it watches it


@signals.worker_shutdown.connect
def _on_worker_end(sender: Any = None, **_: Any) -> None:
    runtime = _runtime_of(sender)
    if runtime is not None:
        alive.end()
        if runtime.observation is not None:
            runtime.observation.end()
        if runtime.presence is not None:
            runtime.presence.leave()


@signals.worker_process_init.connect
def _on_child_start(**_: Any) -> None:
    """Prepare a prefork child."""
    runtime = _current_runtime()
    if runtime is not None:
        runtime.is_prefork_child = True
        runtime.metrics.begin_child(current_process().index)
        if runtime.observation is not None:
            runtime.observation.leave_to_parent()
        with contextlib.suppress(OSError, AttributeError):  # it leads a group already, or this is no POSIX
            os.setsid()  # a poke that signals the group of its process must not end the worker
        # a job's objects live as long as the job: a garbage collection every 700 objects would cost a tenth of its time
        gc.set_threshold(20_000, 20, 20)
        limit_memory(runtime.settings.poke_memory, threads=4 * runtime.settings.poke_concurrency)
        sys.stdout, sys.stderr = BoundedOutput(sys.stdout), BoundedOutput(sys.stderr)
        if runtime.begin_child is not None:
            runtime.begin_child(runtime.is_worn)


@signals.worker_process_shutdown.connect
def _on_child_end(**_: Any) -> None:
    runtime = _current_runtime()
    if runtime is not None:
        runtime.close()


@signals.task_prerun.connect
def _on_job_start(sender: Any = None, **_: Any) -> None:
    runtime = _runtime_of(sender)
    if runtime is not None and runtime.is_prefork_child:
        logs.restore()


@signals.task_failure.connect
def _on_failure(sender: Any = None, task_id: str = "", exception: object = None, args: Any = (), **_: Any) -> None:
    runtime = _runtime_of(sender)
    if runtime is not None and sender.name == wire.POKE_SHARD:
        hostname = getattr(sender.request, "hostname", None) or _hostname
        free_lease(runtime, exception, task_id, hostname, args)


_hostname = f"celery@{socket.gethostname()}"


@signals.celeryd_after_setup.connect
def _on_setup(sender: str = "", instance: Any = None, **_: Any) -> None:
    global _hostname
    _hostname = sender
    runtime = _runtime_of(instance)
    if runtime is None:
        return
    for event, fields in runtime.doubts:
        log.warning(event, **fields)


@signals.after_setup_logger.connect
@signals.after_setup_task_logger.connect
def _on_logging(logger: Any = None, **_: Any) -> None:
    runtime = _current_runtime()
    if runtime is not None:
        _adopt_logging(logger, runtime.settings)


def _adopt_logging(logger: Any, settings: Settings) -> None:
    command = click.get_current_context(silent=True)
    # Celery's own default, WARNING, is no choice of a user
    if command is not None and command.get_parameter_source("loglevel") is ParameterSource.DEFAULT:
        logger.setLevel(settings.log_level)
    logs.adopt(logger, settings.log_format, settings.poke_log_level)
