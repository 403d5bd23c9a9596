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

# values without a back reference to Airflow: all of their attributes are the same in both processes
_VALUES = frozenset(
    {
        *("ds", "ds_nodash", "ts", "ts_nodash", "ts_nodash_with_tz", "run_id", "task_instance_key_str"),
        *("logical_date", "data_interval_start", "data_interval_end", "params", "macros"),
    }
)
_INSTANCE = frozenset({"task_id", "dag_id", "run_id", "try_number", "map_index"})
# names with the attributes that are admitted; each must be asked for an attribute
_PARTS = {
    "dag_run": frozenset({"conf", "run_id", "dag_id", "logical_date", "run_after", "partition_key"}),
    "dag": frozenset({"dag_id", "timezone"}),
    "task": frozenset({"task_id"}),
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
_DEEPEST = 24


@cache
def environment() -> jinja2.Environment:
    """Return the environment of a DAG without settings of its own, without files."""
    return SandboxedEnvironment(undefined=jinja2.StrictUndefined, extensions=["jinja2.ext.do"], cache_size=0)


def reason_against(value: Any, extensions: Collection[str], depth: int = 0) -> str | None:
    """Return why a triggerer cannot render a value of a template field; None if it can.

    :param value: of the codec's types: texts, numbers, and containers of them.
    :param extensions: the file name extensions of the operator's template files.
    """
    if depth > _DEEPEST:
        return "is nested too deep"
    match value:
        case str():
            if value.endswith(tuple(extensions)):
                return "is a template file that could not be read"
            return _reason_against_text(value)
        case Mapping():
            parts: Any = value.values()
        case list() | tuple() | set() | frozenset():
            parts = value
        case _:
            return None
    return next((why for part in parts if (why := reason_against(part, extensions, depth + 1)) is not None), None)


def render(value: Any, context: Mapping[str, Any]) -> Any:
    """Render a value of a template field, as `Templater.render_template` does.

    :raises jinja2.TemplateError: when a name is not there, or the template asks for what the sandbox forbids.
    :raises Exception: whatever the template's own calls raise.
    """
    match value:
        case str():
            return environment().from_string(value).render(context) if _is_template(value) else value
        case Mapping():
            return {name: render(part, context) for name, part in value.items()}
        case list():
            return [render(part, context) for part in value]
        case tuple():
            return tuple(render(part, context) for part in value)
        case set() | frozenset():
            return {render(part, context) for part in value}
    return value


def _is_template(text: str) -> bool:
    """Whether rendering may change a text: jinja also takes one newline from its end."""
    return any(sign in text for sign in ("{{", "{%", "{#")) or text.endswith(("\n", "\r")) or "\r" in text


def _reason_against_text(text: str) -> str | None:
    if not _is_template(text):
        return None
    try:
        tree = environment().parse(text)
    except jinja2.TemplateError:
        return "is no template of Jinja's"
    every = list(tree.find_all(nodes.Node))
    if not all(isinstance(node, _ADMITTED) and not isinstance(node, _NOT_ADMITTED) for node in every):
        return "has a template that takes in others, or defines a macro"
    for kind, known in ((nodes.Filter, environment().filters), (nodes.Test, environment().tests)):
        if unknown := {node.name for node in tree.find_all(kind)} - known.keys():
            return f"has a template with {min(unknown)}, which a triggerer does not know"
    read = meta.find_undeclared_variables(tree) - environment().globals.keys()
    if unknown := read - _VALUES - _PARTS.keys():
        return f"has a template that names {min(unknown)}, which a triggerer does not have as a worker does"
    return _reason_against_parts(every)


def _reason_against_parts(every: Iterable[nodes.Node]) -> str | None:
    """Return why the names that have admitted attributes only are used in another way; None if they are not."""
    asked = set[int]()
    for node in every:
        if isinstance(node, nodes.Getattr | nodes.Getitem) and isinstance(node.node, nodes.Name):
            name, part = node.node.name, _part_of(node)
            if name in _PARTS:
                if part not in _PARTS[name]:
                    return f"has a template that asks {name} for {part or 'what an expression says'}"
                asked.add(id(node.node))
    for node in every:
        if isinstance(node, nodes.Name) and node.name in _PARTS and id(node) not in asked:
            return f"has a template that uses {node.name} as a whole"
    return None


def _part_of(node: nodes.Getattr | nodes.Getitem) -> str:
    if isinstance(node, nodes.Getattr):
        return str(node.attr)
    return str(node.arg.value) if isinstance(node.arg, nodes.Const) else ""
