"""Write docs/settings.md from the settings themselves; ``--check`` says whether it is fresh."""

import sys
from pathlib import Path

from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.config.defaults import PREFIX
from sensorpool.config.settings import Settings

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
HEAD = """# Settings

One environment variable each, read at start. Times are seconds. Lists are comma-separated. Impossible combinations are
refused at start, with a line each. `sensorpool config` shows what is in effect, and where each value comes from.

In Airflow, `airflow.cfg` or `AIRFLOW__SENSORPOOL__NAME` give the same settings in the section `[sensorpool]`;
`SENSORPOOL_NAME` wins. There `database_schema` is `sensorpool` by default on PostgreSQL, and `sensors_enabled` has the
sensors of the providers that are proved poolable ([airflow](airflow.md#patterns)).

This page is generated: `python tools/settings_reference.py`.

| variable | default | what it is |
| --- | --- | --- |
"""
AIRFLOW = """
## Airflow's side

| variable | default | what it is |
| --- | --- | --- |
"""
TAIL = """
Read elsewhere, and not settings: `SENSORPOOL_CONN_<ID>` (a connection, see [how-to](how-to.md#connections)),
`SENSORPOOL_CONFIG_MODULE` (a module with Celery settings, see [operations](operations.md#celery-settings)).
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
