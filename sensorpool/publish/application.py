"""A Celery application that has its settings from us alone, and the settings that sender and worker share.

Celery's own variables win over what an application sets: a ``CELERY_BROKER_URL`` that is meant for another application
of the same environment would move workers, beat or `on_settled` tasks to a broker where nothing of ours is.
"""

import os
from collections.abc import Mapping
from typing import Any, ClassVar

from celery import Celery

from sensorpool.config.settings import Settings
from sensorpool.publish import broker, wire

_BROKERS = ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL")
_OTHERS = ("CELERY_RESULT_BACKEND", "CELERY_CONFIG_MODULE", "CELERY_LOADER")


def celery_settings(settings: Settings) -> dict[str, Any]:
    """Return the Celery settings that sender and worker share: JSON only, no result backend, bounded waits."""
    shared: dict[str, Any] = {
        "broker_url": wire.broker_url(settings.broker),
        "broker_connection_retry_on_startup": True,
        "broker_connection_timeout": 5,
        "broker_connection_max_retries": None,  # with Celery's default a long outage would end the worker
        "broker_transport_options": wire.transport_options(settings.broker, settings.namespace),
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_ignore_result": True,
        "task_default_queue": wire.queue_of(settings),
        "task_queues": [broker.jobs_queue(settings)],
        "task_create_missing_queues": True,
        "task_publish_retry_policy": wire.RETRY,
        "enable_utc": True,
    }
    if settings.namespace:  # on RabbitMQ only these names keep two pools apart
        shared["event_exchange"] = f"celeryev.{settings.namespace}"
        shared["control_exchange"] = f"celery.{settings.namespace}"
    return shared


class Application(Celery):
    """A Celery application that goes by its settings, and by no variable of Celery's. It is not the current one."""

    builtin_fixups: ClassVar[frozenset[str]] = frozenset()  # that for Django is another application's

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        super().__init__(name, set_as_current=False, loader="app", config_source=dict(settings))
        self.backend_cls = settings.get("result_backend") or "disabled"

    def connection_for_read(self, url: str | None = None, **named: Any) -> Any:
        """Return a connection to the broker of the settings."""
        return super().connection_for_read(url or self.conf.get("broker_url"), **named)

    def connection_for_write(self, url: str | None = None, **named: Any) -> Any:
        """Return a connection to the broker of the settings."""
        return super().connection_for_write(url or self.conf.get("broker_url"), **named)

    def connection(self, hostname: str | None = None, **named: Any) -> Any:
        """Return a connection to the broker of the settings."""
        return super().connection(hostname or self.conf.get("broker_url"), **named)


def ignored_variables(settings: Settings) -> list[str]:
    """Return a line that names the variables of Celery's in this environment that have no effect; empty if none is."""
    same = {"", settings.broker, wire.broker_url(settings.broker)}
    names = [name for name in _BROKERS if os.environ.get(name, "") not in same]
    names += [name for name in _OTHERS if os.environ.get(name)]
    if not names:
        return []
    mend = "SENSORPOOL_BROKER_URL sets the pool's broker, and an overlay its other Celery settings"
    return [f"without effect here, as meant for another Celery application: {', '.join(names)}; {mend}"]
