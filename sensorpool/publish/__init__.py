"""Publishing: results, callbacks, and how the broker is spoken to."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sensorpool.publish.listener import listen as listen

__all__ = ["listen"]


def __getattr__(name: str) -> Any:
    """Load `listen` at its first use: most of this package needs no broker."""
    if name != "listen":
        raise AttributeError(f"module 'sensorpool.publish' has no attribute {name!r}")
    return import_module("sensorpool.publish.listener").listen
