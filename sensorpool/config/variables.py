"""The variables of all settings by name, so that a typo is told: with what was most likely meant."""

import os
import re
from collections.abc import Iterable
from difflib import get_close_matches

from sensorpool.config import extensions
from sensorpool.config.defaults import PREFIX
from sensorpool.config.settings import EXTENSIONS, Settings

# Read elsewhere, so not settings: named here so that a typo in a setting can be told from them.
_NOT_SETTINGS = re.compile(r"SENSORPOOL_(CONN_\w+|CONFIG_MODULE|FAILPOINT|TEST_\w+)")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return what a name that is not known was most likely meant to be: ``" (SHARDS?)"``; empty, if nothing is near."""
    found = get_close_matches(name, list(known), n=1, cutoff=0.7)
    return f" ({found[0]}?)" if found else ""


def known_variables() -> set[str]:
    """Name the variables of all settings, those of other packages included."""
    elsewhere = [name for found in extensions.load(EXTENSIONS).values() for name in getattr(found, "names", ())]
    return {f"{PREFIX}{name.upper()}" for name in [*Settings.model_fields, *elsewhere]}


def unknown_variables() -> list[str]:
    """Name the ``SENSORPOOL_*`` variables that no setting has: most likely typos."""
    known = known_variables()
    return sorted(
        name
        for name in os.environ
        if name.startswith(PREFIX) and name not in known and not _NOT_SETTINGS.fullmatch(name)
    )
