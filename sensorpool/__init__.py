"""sensorpool takes sensors off worker slots: register what you wait for, and be told when it lands.

The import of this package is cheap; each of its names is loaded at its first use (PEP 562). ``sensorpool.app`` is the
Celery application, so that ``celery -A sensorpool worker`` finds it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sensorpool.config.version import __version__ as __version__

if TYPE_CHECKING:
    from sensorpool.client.default import cancel, register, register_many, wait, wake
    from sensorpool.client.pool import Pool
    from sensorpool.config.settings import Settings
    from sensorpool.model.values import Instance, Key, PokeReturnValue, Registration

__all__ = [
    "Instance",
    "Key",
    "PokeReturnValue",
    "Pool",
    "Registration",
    "Settings",
    "cancel",
    "register",
    "register_many",
    "wait",
    "wake",
]

_HOMES = {
    "Instance": "model.values",
    "Key": "model.values",
    "PokeReturnValue": "model.values",
    "Registration": "model.values",
    "Pool": "client.pool",
    "Settings": "config.settings",
    "cancel": "client.default",
    "register": "client.default",
    "register_many": "client.default",
    "wait": "client.default",
    "wake": "client.default",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"sensorpool.{_HOMES[name]}"), name)
    if name in {"app", "celery"}:
        return import_module("sensorpool.service.app").app
    raise AttributeError(f"module 'sensorpool' has no attribute {name!r}")
