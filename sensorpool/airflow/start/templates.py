"""Templates that a triggerer renders as a worker would: judged at parse, by their text; rendered strictly.

A triggerer has a smaller template context than a worker: a template that names something else renders there to another
text, without an error, or waits for ever. So only names and attributes are admitted whose values were compared.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any

import jinja2
from airflow.sdk.definitions._internal.templater import SandboxedEnvironment
from jinja2 import meta, nodes

from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.arguments.template_defaults import holds_template, is_template

# values without a back reference to Airflow: all of their attributes are the same in both processes
_VALUES = frozenset(
    {
        *("ds", "ds_nodash", "ts", "ts_nodash", "ts_nodash_with_tz", "run_id", "task_instance_key_str"),
        *("logical_date", "data_interval_start", "data_interval_end", "params", "macros", "conn"),
    }
)
_INSTANCE = frozenset({"task_id", "dag_id", "run_id", "try_number", "map_index"})
_DEFAULT_ARGS = "default_args"
# names with the attributes that are admitted; each must be asked for an attribute. Not admitted are dag.owner, which is
# made of all tasks of a DAG, dag.fileloc, a path on the machine that has parsed it, and dag_run.note, which Airflow
# gives to no triggerer
_PARTS = {
    "dag_run": frozenset({"conf", "run_id", "dag_id", "logical_date", "run_after", "start_date", "partition_key"}),
    "dag": frozenset({"dag_id", "timezone", "tags", "description", "start_date", _DEFAULT_ARGS}),
    "task": frozenset({"task_id", "owner", "retries", "queue", "pool"}),
    "ti": _INSTANCE,
    "task_instance": _INSTANCE,
    "var": frozenset({"value", "json"}),
}
_ADMITTED = (  # statements; expressions are judged by the names that they read
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.For, nodes.Assign, nodes.AssignBlock),
    *(nodes.With, nodes.ExprStmt, nodes.FilterBlock, nodes.Scope, nodes.Expr, nodes.Pair, nodes.Keyword),
)
_NOT_ADMITTED = (
    *(nodes.ContextReference, nodes.DerivedContextReference, nodes.EnvironmentAttribute, nodes.ExtensionAttribute),
    *(nodes.ImportedName, nodes.InternalName, nodes.EvalContextModifier),
)
_PLAIN = (str, int, bool, type(None))  # what every database gives back as it was
# names with fixed values while a run waits, if no other attributes are asked for
_FIXED = _VALUES - {"macros", "conn"} | {"dag_run", "dag", "task", "ti", "task_instance"}
_MAY_CHANGE = ("random", "lipsum")
_DEEPEST = 24


@cache
def environment() -> jinja2.Environment:
    """Return the environment of a DAG without settings of its own, without files."""
    return SandboxedEnvironment(undefined=jinja2.StrictUndefined, extensions=["jinja2.ext.do"], cache_size=0)


def reason_against(
    value: Any, extensions: Collection[str], default_args: Mapping[str, Any] | None = None, depth: int = 0
) -> str | None:
    """Return why a triggerer cannot render a value of a template field; None if it can.

    :param value: of the codec's types: texts, numbers, and containers of them.
    :param extensions: the file name extensions of the operator's template files.
    :param default_args: those of its DAG, which is serialized without its functions.
    """
    if depth > _DEEPEST:
        return "is nested too deep"
    match value:
        case str():
            if value.endswith(tuple(extensions)):
                return "is a template file that could not be read"
            return _reason_against_text(value, default_args or {})
        case Mapping():
            parts: Any = value.values()
        case list() | tuple() | set() | frozenset():
            parts = value
        case _:
            return None
    reasons = (reason_against(part, extensions, default_args, depth + 1) for part in parts)
    return next((why for why in reasons if why is not None), None)


def others_of(sensor: Any, templated: Collection[str], default_args: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return those template fields of a sensor that a worker renders, and that are none of its arguments.

    Its constructor has made them, out of its arguments perhaps.

    :param templated: the names of the arguments that are template fields.
    :raises NotPoolable: when a triggerer cannot render one.
    """
    if known_sensors.declares_fields(type(sensor)):
        return {}  # its answer does not depend on others
    values = {name: getattr(sensor, name, None) for name in sensor.template_fields or () if name not in templated}
    for name, value in values.items():
        if _has_fields(value):
            raise NotPoolable(f"its {name} has template fields of its own", "template")
    others = {name: value for name, value in values.items() if holds_template(value)}
    for name, value in others.items():
        if (why_not := reason_against(value, sensor.template_ext or (), default_args)) is not None:
            raise NotPoolable(f"its {name} {why_not}", "template")
    return others


def _has_fields(value: Any, depth: int = _DEEPEST) -> bool:
    """Whether a value is, or holds, an object that a worker renders field by field."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return depth > 0 and any(_has_fields(part, depth - 1) for part in value)
    return not isinstance(value, str) and hasattr(value, "template_fields")


def may_change(value: Any) -> bool:
    """Whether an admitted value of a template field may be rendered to another one while its run waits."""
    match value:
        case str():
            if not is_template(value):
                return False
            names = meta.find_undeclared_variables(environment().parse(value))
            return not (names and names <= _FIXED) or any(word in value for word in _MAY_CHANGE)
        case Mapping():
            return any(map(may_change, value.values()))
        case list() | tuple() | set() | frozenset():
            return any(map(may_change, value))
    return False


def may_name(value: Any, name: str) -> bool:
    """Whether a template in a value of a template field may use a name; true also where another text has it."""
    match value:
        case str():
            return name in value and is_template(value)
        case Mapping():
            return any(may_name(part, name) for part in value.values())
        case list() | tuple() | set() | frozenset():
            return any(may_name(part, name) for part in value)
    return False


def render(value: Any, context: Mapping[str, Any]) -> Any:
    """Render a value of a template field, as `Templater.render_template` does.

    :raises jinja2.TemplateError: when a name is not there, or the template asks for what the sandbox forbids.
    :raises Exception: whatever the template's own calls raise.
    """
    match value:
        case str():
            return environment().from_string(value).render(context) if is_template(value) else value
        case Mapping():
            return {name: render(part, context) for name, part in value.items()}
        case list():
            return [render(part, context) for part in value]
        case tuple():
            return tuple(render(part, context) for part in value)
        case set() | frozenset():
            return {render(part, context) for part in value}
    return value


def _reason_against_text(text: str, default_args: Mapping[str, Any]) -> str | None:
    if not is_template(text):
        return None
    try:
        tree = environment().parse(text)
    except jinja2.TemplateError:
        return "is no template of Jinja's"
    every = list(tree.find_all(nodes.Node))
    names = [node for node in every if isinstance(node, nodes.Name)]
    if not all(isinstance(node, _ADMITTED) and not isinstance(node, _NOT_ADMITTED) for node in every):
        return "has a template that takes in others, or defines a macro"
    for kind, known in ((nodes.Filter, environment().filters), (nodes.Test, environment().tests)):
        if unknown := {node.name for node in every if isinstance(node, kind)} - known.keys():
            return f"has a template with {min(unknown)}, which a triggerer does not know"
    if all(name.ctx == "load" for name in names):
        read = {name.name for name in names}
    else:  # names of its own have scopes
        read = meta.find_undeclared_variables(tree)
    if unknown := read - environment().globals.keys() - _VALUES - _PARTS.keys():
        return f"has a template that names {min(unknown)}, which a triggerer does not have as a worker does"
    return _reason_against_parts(every, default_args)


def _reason_against_parts(every: Iterable[nodes.Node], default_args: Mapping[str, Any]) -> str | None:
    """Return why the names that have admitted attributes only are used in another way; None if they are not."""
    asked = set[int]()
    for node in every:
        if not isinstance(node, nodes.Getattr | nodes.Getitem):
            continue
        inner, part = node.node, _part_of(node)
        if isinstance(inner, nodes.Name) and inner.name in _PARTS:
            if part not in _PARTS[inner.name]:
                return f"has a template that asks {inner.name} for {part or 'what an expression says'}"
            asked.add(id(inner))
        elif _is_default_args(inner):
            if type(default_args.get(part, ...)) not in _PLAIN:
                return f"has a template that asks default_args for {part or 'what an expression says'}"
            asked.add(id(inner))
    for node in every:
        if id(node) in asked:
            continue
        if isinstance(node, nodes.Name) and node.name in _PARTS:
            return f"has a template that uses {node.name} as a whole"
        if _is_default_args(node):
            return "has a template that uses default_args as a whole"
    return None


def _is_default_args(node: nodes.Node) -> bool:
    return (
        isinstance(node, nodes.Getattr | nodes.Getitem)
        and isinstance(node.node, nodes.Name)
        and node.node.name == "dag"
        and _part_of(node) == _DEFAULT_ARGS
    )


def _part_of(node: nodes.Getattr | nodes.Getitem) -> str:
    if isinstance(node, nodes.Getattr):
        return str(node.attr)
    return str(node.arg.value) if isinstance(node.arg, nodes.Const) else ""
