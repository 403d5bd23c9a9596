"""The overlay: Celery settings of this deployment, laid over the package's own.

The overlay is the module that ``SENSORPOOL_CONFIG_MODULE`` names, or else a ``celeryconfig.py`` that has the line
``SENSORPOOL_CELERY_CONFIG = True``: that of the working directory (which the ``celery`` command does not have on its
path), or else the first on the Python path. A file without that line belongs to another application. It is not even
imported, because such a file once changed the broker silently.
"""

import importlib.util
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from celery.app.defaults import SETTING_KEYS
from celery.utils.imports import import_from_cwd

from sensorpool.errors import SettingsError
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.urls import URL_OPTIONS
from sensorpool.model.words import nearest
from sensorpool.publish import wire

MARK = "SENSORPOOL_CELERY_CONFIG"
NAMED_BY = "SENSORPOOL_CONFIG_MODULE"
_FILE = "celeryconfig"
_MARKED = re.compile(rf"^{MARK}\s*(:[^=\n]*)?=\s*True\b", re.MULTILINE)
_MAPPINGS = ("beat_schedule", "broker_transport_options", "task_publish_retry_policy")
_URLS = frozenset({"broker_url", "broker_read_url", "broker_write_url"})
_HARMFUL = {
    "task_serializer": "the pool's messages are JSON only",
    "accept_content": "the pool's messages are JSON only",
    "task_always_eager": "beat would run the jobs itself",
    "task_default_rate_limit": "it would hold up the ticks; give other tasks a rate_limit of their own",
    "task_queues": "senders and workers of the pool have one queue",
}
_ANNOTATED = ("*", wire.POKE_SHARD, wire.RESCUE)


@dataclass(frozen=True, slots=True)
class Overlay:
    """Celery settings, and their source.

    :param where: the file or module; empty if there is no overlay.
    :param values: the settings by name.
    :param left_alone: a file of the same name that belongs to another application.
    """

    where: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    left_alone: str = ""

    def __str__(self) -> str:
        if self.where:
            return f"{self.where} is laid over the package's Celery settings"
        alone = f"; {self.left_alone} has no line {MARK} = True, and is left alone" if self.left_alone else ""
        return f"no overlay: the package's Celery settings{alone}"

    def unknown(self) -> list[str]:
        """Return a line for each name that is no setting of Celery."""
        return [
            f"{self.where} sets what is no setting of Celery's: {name}{nearest(name, SETTING_KEYS)}"
            for name, value in sorted(self.values.items())
            if name not in SETTING_KEYS and not callable(value)
        ]

    def over(self, package: Mapping[str, Any]) -> dict[str, Any]:
        """Return the package's settings with these laid over them: of two mappings, the keys of both.

        Senders and listeners read no overlay. So a value is refused that differs where all processes must agree, and
        one that would stop the ticks. An entry of ``beat_schedule`` that has a name of the package's is left out.

        :raises SettingsError: with the setting's name, and what to do.
        """
        laid = dict(package)
        for name, value in self.values.items():
            own = package.get(name)
            if name in _URLS:
                if not isinstance(value, str) or wire.broker_url(value) != package["broker_url"]:
                    raise self._refused(
                        f"{name} is not the broker of the pool's other processes: leave it out, and set "
                        "SENSORPOOL_BROKER_URL for all"
                    )
            elif name in _HARMFUL and value != own and (value or own):
                raise self._refused(f"{name}: {_HARMFUL[name]}: leave it out")
            elif (
                name == "task_annotations" and isinstance(value, Mapping) and any(each in value for each in _ANNOTATED)
            ):
                raise self._refused(f"{name} changes the pool's own tasks: name other tasks, and not *")
            elif name in _MAPPINGS:
                laid[name] = self._both(name, value, own or {})
            else:
                laid[name] = value
        return laid

    def _both(self, name: str, value: object, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keys of two mappings."""
        if not isinstance(value, Mapping):
            raise self._refused(f"{name} must be a mapping")
        for key in own.keys() & value.keys() if name != "beat_schedule" else ():
            if value[key] != own[key]:
                raise self._refused(f"{name} has another {key} than the package: {_mend(key)}")
        return {**value, **own}

    def _refused(self, why: str) -> SettingsError:
        return SettingsError(f"{self.where}: {why}")


def _mend(key: str) -> str:
    """Return what to do about a key of the package's to which an overlay gives another value."""
    if key == "global_keyprefix":
        return "leave it out; SENSORPOOL_NAMESPACE sets it for all processes"
    if key in URL_OPTIONS:
        return f"leave it out; the option {key} of the broker's URL sets it for all processes"
    return "leave it out"


def read() -> Overlay:
    """Read the overlay of this process.

    :raises SettingsError: when there is an overlay that cannot be read.
    """
    if named := os.environ.get(NAMED_BY):
        try:
            return Overlay(named, _assignments(import_from_cwd(named)))
        except (Exception, SystemExit) as error:  # a user's module may raise anything
            raise SettingsError(f"{NAMED_BY}: {named} cannot be imported: {one_line(error)}") from None
    try:
        spec = PathFinder.find_spec(_FILE, [os.getcwd(), *sys.path])
    except OSError:  # the working directory was deleted
        spec = PathFinder.find_spec(_FILE)
    if spec is None or spec.loader is None:
        return Overlay()
    where = str(spec.origin)
    if not _is_marked(spec):
        return Overlay(left_alone=where)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise SettingsError(f"{where} cannot be read: {one_line(error)}") from None
    return Overlay(where, _assignments(module))


def _is_marked(spec: ModuleSpec) -> bool:
    """Whether a module has our mark. Its text is read, because another application's module must not run."""
    try:
        text = spec.loader.get_source(spec.name) or ""  # type: ignore[union-attr]  # loaders of PathFinder have it
    except (ImportError, AttributeError):  # unreadable, or no Python text
        return False
    return bool(_MARKED.search(text))


def _assignments(module: ModuleType) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(module).items()
        if name.islower() and not name.startswith("_") and not isinstance(value, ModuleType)
    }
