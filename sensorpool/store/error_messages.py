"""Errors of the database, each as one line with its mend."""

from sqlalchemy import Engine

from sensorpool.errors import SchemaMismatch, SettingsError
from sensorpool.instrumentation.redaction import hide_password
from sensorpool.store.codes import is_conflict, is_denied, is_missing_column, is_missing_table, is_read_only, is_refused


def where(engine: Engine) -> str:
    """Return the URL of the database without its password, for people."""
    return hide_password(engine.url.render_as_string(hide_password=True))


def unreachable(engine: Engine, error: Exception) -> str:
    """Return one line that says why the database does not do what it is asked to do."""
    cause = str(getattr(error, "orig", None) or error).strip().splitlines() or [type(error).__name__]
    said = hide_password(cause[0])[:200]
    if is_denied(error):
        return f"the database {where(engine)} refuses: {said}: give the role its rights (docs/security.md)"
    if is_conflict(error):
        does = "is busy"
    elif is_read_only(error):
        does = "is read-only"
    else:
        does = "refuses the connection" if is_refused(error) else "does not answer"
    return f"the database {where(engine)} {does}: {said}"


def explain(error: Exception) -> None:
    """Raise a clearer error where our tables are missing or old, or the driver does not know an option of the URL.

    :raises SchemaMismatch: when a table or a column is missing.
    :raises SettingsError: when an option is unknown.
    """
    if is_missing_table(error) or is_missing_column(error):
        raise SchemaMismatch(
            "the database has no sensorpool tables, or those of an older version: run `sensorpool db upgrade`"
        ) from error
    said = str(getattr(error, "orig", ""))
    if "invalid connection option" in said or "invalid URI query parameter" in said:
        raise SettingsError(f"SENSORPOOL_DATABASE_URL: {hide_password(said)}") from error
