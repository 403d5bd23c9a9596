"""A service, and a canary: a file that only an attack which worked would write."""

from pathlib import Path

import pytest

from tests.integration.conftest import make_service, sensors, service  # noqa: F401  # fixtures
from tests.security.canary import Canary


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    """A canary of the test's own, with a module that writes it when it is imported."""
    return Canary(tmp_path)
