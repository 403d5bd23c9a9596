"""The environment variables of all settings, so that a typo is reported with the name that was most likely meant."""

import os
import re
from collections.abc import Iterable
from difflib import get_close_matches

from sensorpool.config import extensions
from sensorpool.config.defaults import PREFIX
from sensorpool.config.settings import EXTENSIONS, Settings

# Variables that other modules read: they are no settings, and no typos.
_NOT_SETTINGS = re.compile(r"SENSORPOOL_(CONN_\w+|CONFIG_MODULE|FAILPOINT|TEST_\w+)")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the name that an unknown one was most likely meant to be: ``" (SHARDS?)"``; empty if none is near."""
    matches = get_close_matches(name, list(known), n=1, cutoff=0.7)
    return f" ({matches[0]}?)" if matches else ""


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
        if name.startswith(PREFIX) and name not in known and not _NOT_SETTINGS.fullmatch(name)
    )
