"""sensorpool takes sensors off worker slots: register what you wait for, and be told when it lands.

Importing this package is cheap; what it offers is loaded when it is first asked for (PEP 562). ``sensorpool.app`` is
the Celery application, so that ``celery -A sensorpool worker`` finds it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sensorpool.model import Instance, Key, PokeReturnValue, Registration
    from sensorpool.pool import Pool, cancel, register, register_many, wait
    from sensorpool.settings import Settings

__version__ = "0.1.0"
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
]

_HOMES = {
    "Instance": "model",
    "Key": "model",
    "PokeReturnValue": "model",
    "Registration": "model",
    "Pool": "pool",
    "Settings": "settings",
    "cancel": "pool",
    "register": "pool",
    "register_many": "pool",
    "wait": "pool",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"sensorpool.{_HOMES[name]}"), name)
    if name in {
        "app",
        "celery",
    }:  # once imported, the name ``app`` is the module; Celery then asks for ``celery``
        return import_module("sensorpool.app").app
    raise AttributeError(f"module 'sensorpool' has no attribute {name!r}")
