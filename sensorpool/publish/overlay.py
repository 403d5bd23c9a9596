"""The overlay: Celery settings of this deployment, laid over the package's own.

The overlay is the module that ``SENSORPOOL_CONFIG_MODULE`` names, or else a ``celeryconfig.py`` that has the line
``SENSORPOOL_CELERY_CONFIG = True``: first in the working directory (which the ``celery`` command does not have on its
path), then on the Python path. A file without that line belongs to another application. It is not even imported,
because such a file once changed the broker silently.
"""

import ast
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from celery import current_app
from celery.app.backends import by_url
from celery.app.defaults import SETTING_KEYS
from celery.utils.imports import import_from_cwd

from sensorpool.errors import SettingsError
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.urls import URL_OPTIONS
from sensorpool.model.words import nearest
from sensorpool.publish import overlay_values
from sensorpool.publish.wire import broker_url

MARK = "SENSORPOOL_CELERY_CONFIG"
NAMED_BY = "SENSORPOOL_CONFIG_MODULE"
_FILE = "celeryconfig"
_MAPPINGS = ("beat_schedule", "broker_transport_options", "task_publish_retry_policy")
_URLS = frozenset({"broker_url", "broker_read_url", "broker_write_url"})
_LOOKS_MARKED = re.compile(rf"^{MARK}\s*(:[^=\n]*)?=\s*True\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Overlay:
    """Celery settings, and their source.

    :param where: the file or module; empty if there is no overlay.
    :param values: the settings by name.
    :param left_alone: files of the same name that belong to another application.
    """

    where: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    left_alone: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.where:
            return f"{self.where} is laid over the package's Celery settings"
        alone = "".join(f"; {path} has no line {MARK} = True, and is left alone" for path in self.left_alone)
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

        The package's own keys of a mapping keep pools apart and bound waits, and senders and listeners, which read no
        overlay, go by them too. So a value that differs is refused, and so is a broker of the overlay's own. An entry
        of ``beat_schedule`` that has a name of the package's is left out.

        :raises SettingsError: with the setting's name, and what to do; see also `overlay_values.checked`.
        """
        laid = dict(package)
        for name, value in overlay_values.checked(self.where, self.values).items():
            own = package.get(name)
            if name in _URLS:
                if not isinstance(value, str) or broker_url(value) != package["broker_url"]:
                    raise SettingsError(
                        f"{self.where}: {name} is not the broker of the pool's other processes: leave it out, and set "
                        "SENSORPOOL_BROKER_URL for all"
                    )
            elif name in _MAPPINGS and isinstance(own, Mapping):
                laid[name] = {**value, **own}
                for key in own.keys() & value.keys() if name != "beat_schedule" else ():
                    if value[key] != own[key]:
                        raise SettingsError(f"{self.where}: {name} has another {key} than the package: {_mend(key)}")
            else:
                laid[name] = value
        return laid

    def refuse(self) -> None:
        """Refuse modules that cannot be imported and an unknown result backend: Celery would print tracebacks.

        :raises SettingsError: with the setting's name.
        """
        for name in ("imports", "include"):
            named = self.values.get(name) or ()
            for module in [named] if isinstance(named, str) else named:
                try:
                    import_from_cwd(module)
                except (Exception, SystemExit) as error:
                    raise SettingsError(f"{self.where}: {name} cannot be imported: {one_line(error)}") from None
        if backend := self.values.get("result_backend"):
            try:
                by_url(backend, current_app.loader)
            except Exception as error:
                raise SettingsError(f"{self.where}: result_backend cannot be used: {one_line(error)}") from None


def read() -> Overlay:
    """Read the overlay of this process.

    :raises SettingsError: when there is an overlay that cannot be read.
    """
    found = _read()
    for name in _MAPPINGS:
        if not isinstance(found.values.get(name, {}), Mapping):
            raise SettingsError(f"{found.where}: {name} must be a mapping")
    return found


def _mend(key: str) -> str:
    """Return what to do about a key of the package's to which an overlay gives another value."""
    if key == "global_keyprefix":
        return "leave it out; SENSORPOOL_NAMESPACE sets it for all processes"
    if key in URL_OPTIONS:
        return f"leave it out; the option {key} of the broker's URL sets it for all processes"
    return "leave it out"


def _read() -> Overlay:
    named = os.environ.get(NAMED_BY)
    if named:
        try:
            return Overlay(named, _assignments(import_from_cwd(named)))
        except (Exception, SystemExit) as error:  # a user's module may raise anything
            raise SettingsError(f"{NAMED_BY}: {named} cannot be imported: {one_line(error)}") from None
    left_alone: list[str] = []
    for spec in _found():
        where = str(spec.origin)
        if _is_marked(spec):
            return Overlay(where, _assignments(_run(spec)))
        left_alone.append(where)
    return Overlay(left_alone=tuple(left_alone))


def _found() -> Iterator[ModuleSpec]:
    """Yield the modules of this name, the working directory's first."""
    seen: set[str | None] = {None}
    try:
        working_directory = [os.getcwd()]
    except OSError:  # the directory was deleted
        working_directory = []
    for path in (working_directory, None):
        spec = PathFinder.find_spec(_FILE, path)
        if spec is not None and spec.loader is not None and spec.origin not in seen:
            seen.add(spec.origin)
            yield spec


def _is_marked(spec: ModuleSpec) -> bool:
    """Whether a module has our mark. Its text is read, because another application's module must not run."""
    try:
        text = spec.loader.get_source(spec.name) or ""  # type: ignore[union-attr]  # loaders of PathFinder have it
    except (ImportError, AttributeError):  # unreadable, or no Python text
        return False
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
        return bool(_LOOKS_MARKED.search(text))
    return any(_is_mark(each) for each in statements)


def _is_mark(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    else:
        return False
    is_named = any(isinstance(target, ast.Name) and target.id == MARK for target in targets)
    return is_named and isinstance(statement.value, ast.Constant) and bool(statement.value.value)


def _run(spec: ModuleSpec) -> ModuleType:
    """Run an overlay, as an import does; return its module.

    :raises SettingsError: when it raises.
    """
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)  # type: ignore[union-attr]
    except (Exception, SystemExit) as error:
        del sys.modules[spec.name]
        raise SettingsError(f"{spec.origin} cannot be read: {one_line(error)}") from None
    return module


def _assignments(module: ModuleType) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(module).items()
        if name.islower() and not name.startswith("_") and not isinstance(value, ModuleType)
    }
