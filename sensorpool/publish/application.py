"""A Celery application that has its settings from us alone.

Celery's own variables win over what an application sets: a ``CELERY_BROKER_URL`` that is meant for another application
of the same environment would move workers, beat or `on_settled` tasks to a broker where nothing of ours is.
"""

import os
from typing import ClassVar

from celery import Celery
from celery.app.utils import Settings as CelerySettings
from celery.loaders.app import AppLoader

from sensorpool.config.settings import Settings
from sensorpool.publish import wire

_BROKERS = ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL")
_OTHERS = ("CELERY_RESULT_BACKEND", "CELERY_CONFIG_MODULE", "CELERY_LOADER")


class Application(Celery):
    """A Celery application that goes by its settings, and by no variable of Celery's. It is not the current one."""

    builtin_fixups: ClassVar[frozenset[str]] = frozenset()  # that for Django is another application's

    def __init__(self, name: str) -> None:
        own = {"amqp": "sensorpool.publish.broker:Amqp", "events": "sensorpool.publish.events:Events"}
        super().__init__(name, set_as_current=False, loader=_Loader, **own)
        # Celery keeps this object when it loads the settings; an assignment would make an item of it
        object.__setattr__(self._conf, "__class__", _OwnSettings)


class _Loader(AppLoader):
    def read_configuration(self, env: str = "") -> None:
        """Read no module of ``CELERY_CONFIG_MODULE``."""


class _OwnSettings(CelerySettings):
    """Celery's settings, of which these are properties that look into the environment first."""

    @property
    def broker_url(self) -> str | None:
        """The broker."""
        url: str | None = self.get("broker_url")
        return url

    @property
    def broker_read_url(self) -> str | None:
        """The broker to read from."""
        return self.get("broker_read_url") or self.broker_url

    @property
    def broker_write_url(self) -> str | None:
        """The broker to write to."""
        return self.get("broker_write_url") or self.broker_url

    @property
    def result_backend(self) -> str | None:
        """The backend of results."""
        url: str | None = self.get("result_backend")
        return url


def ignored_variables(settings: Settings) -> list[str]:
    """Return a line that names the variables of Celery's in this environment that have no effect; empty if none is."""
    names = [name for name in _BROKERS if os.environ.get(name, "") not in {"", *_urls(settings)}]
    names += [name for name in _OTHERS if os.environ.get(name)]
    if not names:
        return []
    mend = "SENSORPOOL_BROKER_URL sets the pool's broker, and an overlay its other Celery settings"
    return [f"without effect here, as meant for another Celery application: {', '.join(names)}; {mend}"]


def _urls(settings: Settings) -> set[str]:
    return {settings.broker, wire.broker_url(settings.broker)}
