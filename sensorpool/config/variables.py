"""The environment variables of all settings, so that a typo is reported with the name that was most likely meant."""

import os
import re

from sensorpool.config import extensions
from sensorpool.config.defaults import PREFIX
from sensorpool.config.settings import EXTENSIONS, Settings
from sensorpool.model.words import nearest

# Variables that other modules read: they are no settings, and no typos.
_NOT_SETTINGS = re.compile(r"SENSORPOOL_(CONN_\w+|CONFIG_MODULE|FAILPOINT|TEST_\w+)")
# What Kubernetes sets for a Service named `sensorpool`, or `sensorpool-…`; `enableServiceLinks: false` spares it.
_OF_SERVICES = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")


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
