"""Write docs/settings.md from the settings themselves; ``--check`` says whether it is fresh."""

import sys
from pathlib import Path

from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.config.defaults import PREFIX
from sensorpool.config.settings import Settings

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
HEAD = """# Settings

Each setting is an environment variable, read at start. Times are seconds, lists are comma-separated.
`sensorpool config` shows what is in effect, and where each value comes from.

In Airflow, the section `[sensorpool]` of `airflow.cfg` and `AIRFLOW__SENSORPOOL__NAME` have the same settings.
`SENSORPOOL_NAME` takes precedence. There `database_schema` is `sensorpool` by default on PostgreSQL, and
`sensors_enabled` includes the poolable sensors of the providers ([patterns](airflow.md#patterns)).

`python tools/settings_reference.py` generates this page.

| variable | default | what it is |
| --- | --- | --- |
"""
AIRFLOW = """
## Airflow's side

| variable | default | what it is |
| --- | --- | --- |
"""
TAIL = """
Two variables are not settings: `SENSORPOOL_CONN_<ID>` is a [connection](how-to.md#connections), and
`SENSORPOOL_CONFIG_MODULE` names a module with [Celery settings](operations.md#celery-settings).
"""


def page() -> str:
    """Return the page."""
    return f"{HEAD}{_rows(Settings)}\n{AIRFLOW}{_rows(AirflowSettings)}\n{TAIL}"


def _rows(settings: type[Settings] | type[AirflowSettings]) -> str:
    rows = []
    for name, field in settings.model_fields.items():
        default = field.default
        if field.default_factory is not None:
            shown = "an SQLite file in the user's state folder"
        elif isinstance(default, tuple):
            shown = "<br>".join(f"`{item}`" for item in default) or "none"
        elif isinstance(default, float):
            shown = f"`{default:.12g}`"
        else:
            shown = "none" if default in (None, "") else f"`{default}`"
        rows.append(f"| `{PREFIX}{name.upper()}` | {shown} | {field.description} |")
    return "\n".join(rows)


def main() -> int:
    """Write the page, or check it."""
    if "--check" not in sys.argv:
        PAGE.write_text(page())
    elif PAGE.read_text() != page():
        print("docs/settings.md is stale: run `python tools/settings_reference.py`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
