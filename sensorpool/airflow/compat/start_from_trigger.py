"""What Airflow has for tasks that start from a trigger, without a worker (`features.START_FROM_TRIGGER`)."""

from typing import Any

import jinja2

from sensorpool.airflow.compat import features


def is_offered() -> bool:
    """Whether this Airflow gives a trigger the template context of its task."""
    return features.has(features.START_FROM_TRIGGER)


def has_own_templates(dag: Any) -> bool:
    """Whether a DAG changes how its templates are rendered."""
    return bool(
        dag.user_defined_macros
        or dag.user_defined_filters
        or dag.jinja_environment_kwargs
        or dag.render_template_as_native_obj
        or dag.template_undefined is not jinja2.StrictUndefined
    )
