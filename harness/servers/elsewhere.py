"""A server that the environment names. It is not ours: tests use it, but do not stop it."""

import os
from typing import NoReturn, Self

import pytest
from sqlalchemy import make_url


class Elsewhere:
    """Takes the place of a `Server`; a test that stops or freezes it is skipped."""

    def __init__(self, url: str, variable: str) -> None:
        self.url = url
        self._variable = variable

    @classmethod
    def named_by(cls, variable: str, driver: str | None = None) -> Self | None:
        """Return the server that an environment variable names, or None; the URL of a database gets our driver."""
        url = os.environ.get(variable)
        if not url:
            return None
        if driver:
            parsed = make_url(url)
            backend = driver.partition("+")[0]
            if parsed.get_backend_name() not in {backend, "mariadb" if backend == "mysql" else backend}:
                pytest.exit(f"{variable} must be the URL of a {backend} server", returncode=2)
            url = parsed.set(drivername=driver).render_as_string(hide_password=False)
        return cls(url, variable)

    def start(self) -> Self:
        """Do nothing: the server runs already."""
        return self

    def _not_ours(self) -> NoReturn:
        pytest.skip(f"the server that {self._variable} names is not ours to stop")

    stop = kill = restart = pause = resume = _not_ours
