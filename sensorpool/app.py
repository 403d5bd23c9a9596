"""The Celery application: ``celery -A sensorpool worker``, ``beat`` and ``flower``. This module only builds it.

Celery settings come from the package (with a reason each, below), and then from an overlay: the module that
``SENSORPOOL_CONFIG_MODULE`` names, or a ``celeryconfig`` that says of itself ``SENSORPOOL_CELERY_CONFIG = True``. A
foreign ``celeryconfig.py`` in the working directory is left alone: it once changed the broker without a word.
"""

import gc
import importlib
import importlib.util
import os
import socket
import sys
import time
from functools import cache
from types import ModuleType
from typing import Any, NoReturn

import billiard.pool
from celery import Celery, current_app, signals
from celery.beat import BeatLazyFunc
from celery.schedules import schedule as every

from sensorpool import __version__, logs, metrics, migrate, wire
from sensorpool.errors import SensorpoolError, SettingsError
from sensorpool.model import shard_ranges
from sensorpool.poke import memory
from sensorpool.poke.printing import Bounded
from sensorpool.settings import MEMORY, Settings, unknown_variables
from sensorpool.store import looking
from sensorpool.store.database import Database
from sensorpool.tasks import Runtime, add_tasks, free_lease_of_dead

MARK = "SENSORPOOL_CELERY_CONFIG"
OVERLAY = "SENSORPOOL_CONFIG_MODULE"
_LOOK_AFTER_CHILDREN = 0.5  # seconds

log = logs.logger(__name__)


def make_app(settings: Settings) -> Celery:
    """Build the application of some settings."""
    made = Celery("sensorpool", set_as_current=False, amqp="sensorpool.broker:Amqp")
    made.conf.update(worker_settings(settings))
    made.conf.beat_schedule = schedule(settings)
    for name, value in _overlay().items():
        made.conf[name] = value
    runtime = Runtime(settings)
    add_tasks(made, runtime)
    made.sensorpool_runtime = runtime
    return made


def worker_settings(settings: Settings) -> dict[str, Any]:
    """Return the Celery settings of workers and beat, with a reason each."""
    return wire.celery_settings(settings) | {
        # prefork: only there do time limits work, and can a child be killed
        "worker_pool": "prefork",
        # what is no message is dropped, and ends no worker
        "worker_consumer": "sensorpool.consumer:SturdyConsumer",
        # a job that waits in a child's buffer is late; one in the queue is anybody's
        "worker_prefetch_multiplier": 1,
        "worker_disable_prefetch": settings.broker.startswith(("redis", "unix")),
        # recovery is the next tick and the lease, never redelivery: a poison job would loop for ever
        "task_acks_late": False,
        "task_reject_on_worker_lost": False,
        # sensors are other people's code: what they leak goes with the child
        "worker_max_tasks_per_child": 10_000,
        "worker_max_memory_per_child": settings.poke_memory * 1024 // 2,  # KB; before its pokes run out of it
        "worker_soft_shutdown_timeout": 10,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        # Flower lives on these
        "worker_send_task_events": True,
        "task_send_sent_event": True,
        "worker_hijack_root_logger": False,
        # no shelve file either: everything is due at once after a start, and that is harmless
        "beat_scheduler": "sensorpool.beat:Ticks",
        "beat_max_loop_interval": 1,
    }


def schedule(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return beat's schedule: one entry for each shard range, and rescue."""
    entries: dict[str, dict[str, Any]] = {}
    for shard_range in shard_ranges(settings.shards, settings.shard_code_upper_limit):
        options = wire.shard_message(shard_range)
        arguments = options.pop("args")
        entries[f"poke-{shard_range}"] = {
            "task": wire.POKE_SHARD,
            "schedule": every(settings.tick),
            "args": arguments,
            "kwargs": {"tick": BeatLazyFunc(_tick_number, settings.tick)},
            "options": options,
        }
    entries["rescue"] = {
        "task": wire.RESCUE,
        "schedule": every(settings.rescue_interval),
        "options": {"expires": wire.EXPIRES, "queue": wire.QUEUE},
    }
    return entries


def _tick_number(tick: float) -> int:
    """Number the tick for people; nothing depends on it."""
    return int(time.time() / tick)


def _overlay() -> dict[str, Any]:
    """Read the Celery settings of the module that the environment names, or of a ``celeryconfig`` that is ours."""
    named = os.environ.get(OVERLAY)
    if named:
        try:
            return _assignments(importlib.import_module(named))
        except ImportError as error:
            raise SettingsError(f"{OVERLAY}: {named} cannot be imported: {error}") from None
    if importlib.util.find_spec("celeryconfig") is None:
        return {}
    module = importlib.import_module("celeryconfig")
    return _assignments(module) if getattr(module, MARK, False) else {}


def _assignments(module: ModuleType) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(module).items()
        if name.islower() and not name.startswith("_") and not isinstance(value, ModuleType)
    }


# what happens when -----------------------------------------------------------------------------------------------


def _runtime_of(sender: Any) -> Runtime | None:
    """Return the runtime of whoever sent a signal, if it is an application of ours."""
    return getattr(getattr(sender, "app", None), "sensorpool_runtime", None)


def _current_runtime() -> Runtime | None:
    """Return the runtime of this process's application, if it is one of ours."""
    return getattr(current_app._get_current_object(), "sensorpool_runtime", None)


@signals.celeryd_init.connect
def _on_worker_start(instance: Any = None, **_: Any) -> None:
    """Refuse to start where it could not work, with one line that says what mends it."""
    runtime = _runtime_of(instance)
    if runtime is None:
        return
    settings = runtime.settings
    try:
        _refuse_memory(settings)
        database = Database(settings.database_url, schema=settings.database_schema)
        migrate.check(database, __version__)
        database.dispose()
        runtime.worker.leases.ping()
    except SensorpoolError as error:
        _give_up(error)
    policy = runtime.worker.leases.eviction_policy()
    if policy not in {None, "noeviction"}:
        log.warning("Redis may evict leases and jobs: set maxmemory-policy to noeviction", policy=policy)
    for name in unknown_variables():
        log.warning("there is no such setting", variable=name)
    if settings.metrics_port is not None:
        metrics.prepare()
        runtime.metrics.start()
    runtime.close()


@signals.beat_init.connect
def _on_beat_start(sender: Any = None, **_: Any) -> None:
    runtime = _runtime_of(sender)
    if runtime is not None and not runtime.is_one_process:
        try:
            _refuse_memory(runtime.settings)
        except SettingsError as error:
            _give_up(error)


def _give_up(error: Exception) -> NoReturn:
    """Say what is wrong, a line each, and leave: past Celery, which turns standard error into log lines."""
    for line in str(error).splitlines():
        print(f"sensorpool: {line}", file=sys.__stderr__, flush=True)
    sys.exit(1)


def _refuse_memory(settings: Settings) -> None:
    if settings.broker == MEMORY:
        raise SettingsError(
            "the broker is memory://, which serves one process only: "
            "set SENSORPOOL_REDIS_URL (and SENSORPOOL_BROKER_URL for RabbitMQ), or run `sensorpool standalone`"
        )


@signals.worker_ready.connect
def _on_worker_ready(sender: Any = None, **_: Any) -> None:
    runtime = _runtime_of(sender)
    if runtime is None:
        return
    hub = getattr(sender, "hub", None)
    if hub is not None and hasattr(sender.pool, "maintain_pool"):
        # Celery looks every five seconds: it is told of deaths, but too early to see some of them
        hub.call_repeatedly(_LOOK_AFTER_CHILDREN, sender.pool.maintain_pool)
    if runtime.settings.metrics_port is None:
        return
    port = runtime.settings.metrics_port
    settings = runtime.settings
    database = Database(settings.database_url, schema=settings.database_schema, pool_size=1)
    try:
        metrics.serve(port, lambda: database.read(looking.count_waiting))
    except OSError as error:
        log.error("no metrics: their port cannot be used", port=port, error=str(error))


@signals.worker_process_init.connect
def _on_child_start(**_: Any) -> None:
    """Make ready a prefork child of ours."""
    runtime = _current_runtime()
    if runtime is not None:
        runtime.is_prefork_child = True
        # what a job makes lives as long as the job: to look for garbage in it every 700 objects costs a tenth of it
        gc.set_threshold(20_000, 20, 20)
        memory.limit(runtime.settings.poke_memory, threads=4 * runtime.settings.poke_concurrency)
        sys.stdout, sys.stderr = Bounded(sys.stdout), Bounded(sys.stderr)
        _replace_when_worn(runtime)


def _replace_when_worn(runtime: Runtime) -> None:
    """Have billiard replace this child between two jobs once too many threads hang in it.

    billiard asks after each job how much memory the child takes and recycles it above a limit; that is the one place
    where a child can be replaced without losing a job.
    """
    rss = billiard.pool.mem_rss
    billiard.pool.mem_rss = lambda: 2**40 if runtime.is_worn else rss()


@signals.worker_process_shutdown.connect
def _on_child_end(pid: int | None = None, **_: Any) -> None:
    runtime = _current_runtime()
    if runtime is not None:
        runtime.close()
        if pid is not None:
            metrics.child_ended(pid)


@signals.task_failure.connect
def _on_failure(sender: Any = None, task_id: str = "", exception: object = None, args: Any = (), **_: Any) -> None:
    runtime = _runtime_of(sender)
    if runtime is not None and sender.name == wire.POKE_SHARD:
        hostname = getattr(sender.request, "hostname", None) or _hostname
        free_lease_of_dead(runtime, exception, task_id, hostname, args)


_hostname = f"celery@{socket.gethostname()}"


@signals.celeryd_after_setup.connect
def _on_setup(sender: str = "", **_: Any) -> None:
    global _hostname
    _hostname = sender


@signals.after_setup_logger.connect
@signals.after_setup_task_logger.connect
def _on_logging(logger: Any = None, **_: Any) -> None:
    runtime = _current_runtime()
    if runtime is not None:
        for handler in logger.handlers:
            handler.setFormatter(logs.formatter(runtime.settings.log_format))


@cache
def _build() -> Celery:
    """Build the application of the environment. The celery command shall print one line, not a traceback."""
    try:
        return make_app(Settings.load())
    except SettingsError as error:
        if os.path.basename(sys.argv[0]) in {"celery", "celery.exe"}:
            _give_up(error)
        raise


def __getattr__(name: str) -> Any:
    """Build ``app`` when it is asked for (PEP 562): importing this module does nothing."""
    if name == "app":
        return _build()
    raise AttributeError(f"module 'sensorpool.app' has no attribute {name!r}")
