"""Packages that not each machine can have: without one its tests are skipped, and under ``CI=true`` they fail."""

import os
from importlib import import_module
from typing import Any

import pytest


def needed(module: str, what: str) -> Any:
    """Return a module; skip the tests of this file without it.

    :param what: says what it is, for the reason.
    """
    if os.environ.get("CI") == "true":
        return import_module(module)
    return pytest.importorskip(module, reason=f"{what} is not installed")
