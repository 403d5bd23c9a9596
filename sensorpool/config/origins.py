"""Where settings are written: the origin of each, and what is written there and is no setting (most likely a typo)."""

import os
import re
from typing import Any

from sensorpool.config import extensions
from sensorpool.config.defaults import PREFIX
from sensorpool.config.settings import EXTENSIONS, Settings, variable
from sensorpool.errors import SettingsError
from sensorpool.model.words import nearest

ENVIRONMENT = "environment"
DEFAULT = "default"
# Variables that other modules read: they are no settings, and no typos.
_NOT_SETTINGS = re.compile(r"SENSORPOOL_(CONN_\w+|CONFIG_MODULE|FAILPOINT|TEST_\w+)")
# What Kubernetes sets for a Service named `sensorpool`, or `sensorpool-…`; `enableServiceLinks: false` spares it.
_OF_SERVICES = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")


def with_origins(settings: Settings) -> tuple[dict[str, tuple[Any, str]], list[str]]:
    """Return the shown value of each setting and its origin, also the settings that extensions have of their own.

    :returns: beside them a line for each setting of an extension that is wrong: none of its own are shown then.
    :raises SettingsError: when a configuration cannot be read.
    """
    shown = settings.shown()
    places: dict[str, str] = {}
    wrong: list[str] = []
    for extension in extensions.load(EXTENSIONS).values():
        if not (found := extension()):
            continue
        written = extension.written() if hasattr(extension, "written") else found
        places = dict.fromkeys(written, getattr(extension, "place", extension.__module__)) | places  # the first wins
        try:
            shown |= dict(extension.own()) if hasattr(extension, "own") else {}
        except SettingsError as error:
            wrong += str(error).splitlines()
    places |= {name: ENVIRONMENT for name in shown if os.environ.get(variable(name))}
    return {name: (value, places.get(name, DEFAULT)) for name, value in shown.items()}, wrong


def known_variables() -> set[str]:
    """Return the variables of all settings, including the settings of other packages."""
    others = [name for extension in extensions.load(EXTENSIONS).values() for name in getattr(extension, "names", ())]
    return {f"{PREFIX}{name.upper()}" for name in [*Settings.model_fields, *others]}


def unknown_settings() -> list[str]:
    """Return each setting that is written somewhere and does not exist, with the name that was most likely meant."""
    known = known_variables()
    own = [f"{name}{nearest(name, known)}" for name in unknown_variables()]
    others = (getattr(extension, "unknown", None) for extension in extensions.load(EXTENSIONS).values())
    return own + [said for unknown in others if unknown is not None for said in unknown()]


def unknown_variables() -> list[str]:
    """Return the ``SENSORPOOL_*`` variables of the environment that belong to no setting: most likely typos."""
    known = known_variables()
    return sorted(
        name
        for name in os.environ
        if name.startswith(PREFIX)
        and name not in known
        and not (_NOT_SETTINGS.fullmatch(name) or _OF_SERVICES.fullmatch(name) or os.environ[name].startswith("tcp://"))
    )
