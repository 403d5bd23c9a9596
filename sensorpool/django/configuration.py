"""The settings of a Django project: ``SENSORPOOL_DATABASE_URL = …`` beside ``CELERY_BROKER_URL = …``.

The environment wins. ``SENSORPOOL_DATABASE = "default"`` takes the database of that name in ``DATABASES``. Django is
imported only in a process that it is set up in, or that names its settings.
"""

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from sensorpool.config.defaults import PREFIX
from sensorpool.config.options import Options
from sensorpool.errors import SettingsError
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.words import nearest

_DATABASE = f"{PREFIX}DATABASE"
_MEND = f"name it in {PREFIX}DATABASE_URL"
# those that change what Django does with a connection, and no part of where it leads; the pool has limits of its own
_OF_DJANGO = frozenset(
    {"isolation_level", "pool", "assume_role", "server_side_binding", "client_encoding", "charset", "init_command"}
    | {"sql_mode", "timeout", "transaction_mode", "use_unicode", "autocommit", "read_timeout", "write_timeout"}
    | {"keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"}
    | {"prepare_threshold", "cursor_factory", "context", "row_factory"}
)
_DRIVERS = {
    "django.db.backends.postgresql": "postgresql+psycopg",
    "django.contrib.gis.db.backends.postgis": "postgresql+psycopg",
    "django.db.backends.mysql": "mysql+pymysql",
    "django.db.backends.sqlite3": "sqlite",
}


def settings() -> dict[str, Any]:
    """Return the settings that the project gives: the entry point ``sensorpool.settings``.

    :raises SettingsError: when the project's settings cannot be imported, name an unknown setting, or a database that
        the pool cannot have.
    """
    project = _project()
    if project is None:
        return {}
    names = [name for name in dir(project) if name.startswith(PREFIX) and name != _DATABASE]
    known = {f"{PREFIX}{name.upper()}": name for name in Options.model_fields}
    for name in names:
        if name not in known:
            raise SettingsError(f"Django's settings have {name}, which is no setting{nearest(name, known)}")
    found = {known[name]: getattr(project, name) for name in names}
    if (alias := getattr(project, _DATABASE, None)) is not None and "database_url" not in found:
        found["database_url"] = _url(project, alias)
    return {name: value for name, value in found.items() if value not in (None, "")}


settings.place = "Django's settings"  # type: ignore[attr-defined]  # for `sensorpool config`


def _project() -> Any | None:
    """Return the project's settings; None where there is no Django project."""
    if not os.environ.get("DJANGO_SETTINGS_MODULE") and "django.conf" not in sys.modules:
        return None
    if find_spec("django") is None:
        return None
    from django.conf import settings as project

    if not project.configured and not os.environ.get("DJANGO_SETTINGS_MODULE"):
        return None
    try:
        project.INSTALLED_APPS  # noqa: B018  # it is read in at its first use
    except Exception as error:
        raise SettingsError(f"Django's settings cannot be imported: {one_line(error)}") from None
    return project


def _url(project: Any, alias: object) -> str:
    """Return the URL of a database in ``DATABASES``."""
    from sqlalchemy import URL  # slow to import, for commands that ask no database

    found = project.DATABASES.get(alias)
    if not isinstance(found, dict):
        raise SettingsError(f"{_DATABASE} names {alias!r}, which is not in DATABASES")
    driver = _DRIVERS.get(found.get("ENGINE", ""))
    if driver is None:
        raise SettingsError(
            f"{_DATABASE} names a database of {found.get('ENGINE')}, and the pool takes PostgreSQL, MySQL, MariaDB and "
            f"SQLite: name one in {PREFIX}DATABASE_URL"
        )
    if not found.get("NAME"):
        raise SettingsError(f"{_DATABASE} names a database of DATABASES without a NAME: {_MEND}")
    if driver == "sqlite":
        return f"sqlite:///{found['NAME']}"
    host, port, query = str(found.get("HOST") or ""), str(found.get("PORT") or ""), _query(driver, found)
    if port and not port.isdecimal():
        raise SettingsError(f"{_DATABASE} names a database whose PORT is {port[:40]!r}: {_MEND}")
    if host.startswith("/"):  # the folder of a socket, or the socket
        query["host" if driver.startswith("postgresql") else "unix_socket"] = host
        host = ""
    return URL.create(
        driver,
        found.get("USER") or None,
        found.get("PASSWORD") or None,
        host or None,
        int(port) if port else None,
        str(found["NAME"]),
        query,
    ).render_as_string(hide_password=False)


def _query(driver: str, found: Mapping[str, Any]) -> dict[str, str]:
    """Return the options of a connection as they stand in a URL: libpq refuses one that it does not know.

    :raises SettingsError: when there is one that would be lost.
    """
    options = {str(name): value for name, value in (found.get("OPTIONS") or {}).items() if name not in _OF_DJANGO}
    if not driver.startswith("postgresql") and (lost := sorted(options.keys() - {"connect_timeout"})):
        raise SettingsError(f"{_DATABASE} names a database with the option {lost[0]!r}: {_MEND}")
    return {name: str(value) for name, value in options.items()}
