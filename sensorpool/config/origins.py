"""Where each setting comes from: the environment, a configuration that an extension reads, or its default."""

import os
from typing import Any

from sensorpool.config import extensions
from sensorpool.config.refusals import variable
from sensorpool.config.settings import EXTENSIONS, Settings
from sensorpool.errors import SettingsError

ENVIRONMENT = "environment"
DEFAULT = "default"


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
