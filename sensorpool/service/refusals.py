"""Reasons for which a worker or beat does not start: each in one line, where operators see it."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from celery.concurrency import get_implementation
from celery.concurrency.prefork import TaskPool

from sensorpool.config.defaults import MEMORY
from sensorpool.config.settings import Settings
from sensorpool.errors import SettingsError, Unreachable
from sensorpool.instrumentation import logs
from sensorpool.leases.redis_store import RedisStore, connect
from sensorpool.publish import wire


def give_up(error: Exception, log_files: Sequence[str] = (), log_format: str = "text") -> NoReturn:
    """Print the lines of an error, and exit. Not through Celery, which turns standard error into log lines.

    :param log_files: the files to which the process logs, or will log: a detached process has no standard error.
    :param log_format: the format of these files.
    """
    lines = str(error).splitlines()
    for line in lines:
        print(f"sensorpool: {line}", file=sys.__stderr__, flush=True)
    for path in log_files:
        try:
            with Path(path).open("a", encoding="utf-8") as file:
                file.writelines(f"{_logged(line, log_format)}\n" for line in lines)
        except OSError as problem:
            print(f"sensorpool: the log file cannot be written: {problem}", file=sys.__stderr__, flush=True)
    sys.exit(1)


def _logged(line: str, log_format: str) -> str:
    record = logging.LogRecord(__name__, logging.CRITICAL, "", 0, f"it does not start: {line}", None, None)
    return logs.formatter(log_format).format(record)


def refuse_memory(settings: Settings) -> None:
    if settings.broker == MEMORY:
        raise SettingsError(
            "the broker is memory://, which serves one process only: "
            "set SENSORPOOL_REDIS_URL (and SENSORPOOL_BROKER_URL for RabbitMQ), or run `sensorpool standalone`"
        )


def refuse_cluster(settings: Settings) -> None:
    """Refuse a Redis in cluster mode, for the leases or as the broker.

    :raises SettingsError: when it is in cluster mode.
    :raises Unreachable: when the Redis of the leases does not answer. A worker waits for its broker.
    """
    for url in dict.fromkeys([settings.redis_url, *settings.broker.split(";")]):
        if wire.is_redis(url):
            try:
                said = RedisStore(connect(url), url=url, namespace=settings.namespace).in_cluster_mode()
            except Unreachable:
                if url == settings.redis_url:
                    raise
                continue
            if said is not None:
                raise SettingsError(said)


def refuse_pool(pool: Any) -> None:
    """Refuse Celery's other worker pools: with them, Celery ignores time limits and cannot end a job.

    :param pool: the class of the worker pool, or its name in Celery.
    :raises SettingsError: when it is not prefork.
    """
    implementation = get_implementation(pool)
    if not (isinstance(implementation, type) and issubclass(implementation, TaskPool)):
        name = pool if isinstance(pool, str) else implementation.__module__.rpartition(".")[2]
        raise SettingsError(
            f"the worker's pool is {name}, where a job that hangs cannot be ended: leave --pool and worker_pool out, "
            "or run `sensorpool standalone` for one process of threads"
        )
