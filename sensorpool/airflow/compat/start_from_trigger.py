"""What Airflow has for tasks that start from a trigger, without a worker (`features.START_FROM_TRIGGER`)."""

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
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


def changed_param(task: Any) -> str | None:
    """Return the name of a param whose value a serialized DAG does not give back; None if there is none.

    Airflow serializes the params of a DAG, and those of a task. It does not read all nested values back. Nor do
    databases keep all of JSON: the keys of an object may come back in another order, and 1e16 as an integer.

    :raises Exception: when a value cannot be serialized.
    """
    from airflow.serialization.serialized_objects import BaseSerialization

    for params in (task.dag.params, task.params):
        given = {name: param for name in params if not _is_plain((param := params.get_param(name)).value)}
        text = json.dumps(BaseSerialization._serialize_params_dict(given))
        for order in (str, _order_of_jsonb):
            encoded = json.loads(text, object_pairs_hook=partial(_sorted, order), parse_float=_number_of_jsonb)
            back = BaseSerialization._deserialize_params_dict(encoded)
            for name, param in given.items():
                if repr(param.value) != repr(back.get_param(name).value):
                    return str(name)
    return None


def _sorted(order: Callable[[str], Any], pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return dict(sorted(pairs, key=lambda pair: order(pair[0])))


def _order_of_jsonb(key: str) -> tuple[int, bytes]:
    """Return what PostgreSQL and MySQL sort keys by; Airflow itself sorts them by name when it compresses them."""
    return len(key.encode()), key.encode()


def _number_of_jsonb(text: str) -> Any:
    return json.loads(format(Decimal(text) + 0, "f"))


def _is_plain(value: Any) -> bool:
    """Whether a value is one that JSON always gives back, as most are."""
    return type(value) in (int, bool, type(None)) or (type(value) is str and value.isascii())
