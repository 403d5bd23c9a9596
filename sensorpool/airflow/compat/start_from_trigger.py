"""What Airflow 3.3 has for tasks that start from a trigger, without a worker."""

from typing import Any

import jinja2

_SINCE = (3, 3)


def is_offered() -> bool:
    """Whether this Airflow gives a trigger the template context of its task."""
    from airflow import __version__

    return tuple(int(part) for part in __version__.split(".")[:2]) >= _SINCE


def has_teams() -> bool:
    """Whether the tasks of this Airflow may be of teams."""
    from airflow.configuration import conf

    return bool(conf.getboolean("core", "multi_team", fallback=False))


def has_own_templates(dag: Any) -> bool:
    """Whether a DAG changes how its templates are rendered."""
    return bool(
        dag.user_defined_macros
        or dag.user_defined_filters
        or dag.jinja_environment_kwargs
        or dag.render_template_as_native_obj
        or dag.template_undefined is not jinja2.StrictUndefined
    )
