"""Write docs/sensors.md: every sensor class of the installed providers, and whether it can be pooled.

The verdict is the project's own: each class is constructed with placeholders for its arguments, and asked as on a
worker. What only a poke would show (that it reads the template context) is looked up in its source. ``--check`` says
whether the page is fresh. Needs Airflow and the providers: the environment of `make e2e`.
"""

import ast
import datetime as dt
import importlib
import inspect
import logging
import pkgutil
import re
import sys
import textwrap
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).parents[1] / "docs" / "sensors.md"
PROVIDERS = ("standard", "common.sql", "http", "apache.hive", "ftp", "sftp", "redis", "amazon", "google")
HEAD = """# Which sensors can be pooled

Every sensor class of these providers, as they are in the versions named. This page is generated and held fresh by a
test: `python tools/sensors_reference.py`.

- **poolable**: built again from its constructor's arguments it is the same sensor, and its poke needs no more.
- **poolable if**: so, unless the argument that is named is given: a callable cannot be sent to the pool.
- **native**: it runs on its worker as ever, for the reason given. Nothing has to be configured for that.

A class must also be listed in `[sensorpool] sensors_enabled`; those with a ✓ are by default. With `deferrable=True` a
sensor never asks the pool: it defers by itself. Subclasses are judged by themselves, on the worker, each time: a
company's own class is poolable if it can be imported by the pool and passes the same proof; with AIP-17's
`poke_context_fields` it says itself which of its attributes are its condition.
"""


class Verdict(NamedTuple):
    """What is said of one class."""

    name: str
    by_default: bool
    verdict: str
    reason: str


def main() -> int:
    """Write the page, or check it."""
    found = page()
    if "--check" not in sys.argv:
        PAGE.write_text(found)
    elif PAGE.read_text() != found:
        print("docs/sensors.md is stale: run `python tools/sensors_reference.py`", file=sys.stderr)
        return 1
    return 0


def page() -> str:
    """Return the page."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    parts, missing = [HEAD], []
    for provider in PROVIDERS:
        classes, not_imported = _classes(provider)
        missing += not_imported
        package = f"apache-airflow-providers-{provider.replace('.', '-')}"
        rows = sorted(judge(cls) for cls in classes)
        parts.append(
            f"\n## {provider} ({version(package)})\n\n| class | ✓ | verdict | why |\n| --- | --- | --- | --- |\n"
        )
        parts += [
            f"| `{row.name}` | {'✓' if row.by_default else ''} | {row.verdict} | {row.reason} |\n" for row in rows
        ]
    if missing:
        parts.append("\nNot looked at, for they need a provider that is not installed here:\n\n")
        parts += [f"- `{name}`\n" for name in sorted(missing)]
    return "".join(parts)


def judge(cls: type) -> Verdict:
    """Say whether a class can be pooled."""
    from airflow.sdk import DAG

    from sensorpool.airflow import known, rebuild
    from sensorpool.airflow.configuration import AIRFLOW_SENSORS
    from sensorpool.airflow.refusal import NotPoolable

    op_classpath = f"{cls.__module__}.{cls.__qualname__}"

    def say(verdict: str, reason: str = "") -> Verdict:
        return Verdict(cls.__qualname__, op_classpath in AIRFLOW_SENSORS, verdict, reason)

    if not _reaches_base(cls):
        return say("native", "its execute never asks the base class")
    if (why := known.why_not(op_classpath)) is not None:
        return say("native", why)
    callables = sorted(name for name, parameter in _parameters(cls).items() if _is_callable(name, parameter))
    required = [name for name in callables if _parameters(cls)[name].default is inspect.Parameter.empty]
    if required or cls.__name__.startswith("Python") or "Decorated" in cls.__name__:
        return say("native", f"its argument {(required or ['python_callable'])[0]} is a callable")
    reason = f"unless {' or '.join(f'`{name}`' for name in callables)} is given" if callables else ""
    if (adapted := _adapter(cls)) is not None:
        return say("poolable if" if callables else "poolable", "; ".join(filter(None, (adapted, reason))))
    with DAG("placeholder", schedule=None):
        sensor = _construct(cls, _placeholders(cls))
    if getattr(sensor, "deferrable", False):
        return say("native", "it always defers by itself")
    to_callables = bool(callables) and all(_parameters(cls)[name].default is None for name in callables)
    if cls.__name__ in _UNLESS:
        reason = _UNLESS[cls.__name__]
    elif (what := _reads_context(cls, may_hand_on=to_callables)) is not None:
        return say("native", what)
    try:
        rebuild.poke_context_of(sensor)
    except NotPoolable as error:
        return say("native", str(error))
    return say("poolable if" if reason else "poolable", reason)


_UNLESS = {"DayOfWeekSensor": "unless `use_task_logical_date` is given: then it reads the template context"}


def _adapter(cls: type) -> str | None:
    """Return what its adapter does, if it has one of its own."""
    from sensorpool import extensions
    from sensorpool.poke.classes import ADAPTERS

    entry = extensions.named(ADAPTERS).get(f"{cls.__module__}.{cls.__qualname__}")
    return None if entry is None else f"by an adapter: `{entry.module.rpartition('.')[2]}`"


def _classes(provider: str) -> tuple[list[type], list[str]]:
    from airflow.sdk.bases.sensor import BaseSensorOperator

    package = importlib.import_module(f"airflow.providers.{provider}")
    missing: list[str] = []
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", onerror=_no_matter):
        if ".sensors" in found.name and "example_dags" not in found.name:
            try:
                importlib.import_module(found.name)
            except Exception:
                missing.append(found.name)
    prefix = f"airflow.providers.{provider}."
    every = [cls for cls in _subclasses(BaseSensorOperator) if cls.__module__.startswith(prefix)]
    return [cls for cls in dict.fromkeys(every) if not _is_base(cls)], missing


def _no_matter(_: str) -> None:
    """A package that cannot be imported has no sensors for us; a module of sensors is named on the page."""


def _subclasses(cls: type) -> Iterator[type]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)


def _is_base(cls: type) -> bool:
    """Whether a class is there to be derived from only."""
    if inspect.isabstract(cls) or cls.__name__.endswith("BaseSensor") or cls.__name__.startswith(("AwsBase", "Base")):
        return True
    return any("raise NotImplementedError" in _source(function) for _, function in _own_functions(cls, "poke"))


def _parameters(cls: type) -> dict[str, inspect.Parameter]:
    """Return the arguments of its constructors that not every sensor takes."""
    from sensorpool.airflow import compat

    found: dict[str, inspect.Parameter] = {}
    for base in reversed(cls.__mro__):
        if "__init__" in vars(base) and base.__module__.startswith("airflow.providers."):
            found |= inspect.signature(inspect.unwrap(vars(base)["__init__"])).parameters
    ordinary = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    skipped = compat.base_arguments() | {"self"}
    return {name: one for name, one in found.items() if one.kind in ordinary and name not in skipped}


def _is_callable(name: str, parameter: inspect.Parameter) -> bool:
    return "Callable" in str(parameter.annotation) or name.endswith(("_callback", "_callable", "check_fn"))


def _construct(cls: Any, arguments: dict[str, Any]) -> Any:
    """Construct a sensor; what a class hands on to its base by itself is left out."""
    while True:
        try:
            return cls(task_id="placeholder", **arguments)
        except TypeError as error:
            by_itself = re.search(r"multiple values for keyword argument '(\w+)'", str(error))
            if by_itself is None or by_itself[1] not in arguments:
                raise
            del arguments[by_itself[1]]


def _placeholders(cls: type) -> dict[str, Any]:
    special = _SPECIAL.get(cls.__name__, {})
    return {
        name: _placeholder(name, str(parameter.annotation))
        for name, parameter in _parameters(cls).items()
        if parameter.default is inspect.Parameter.empty
    } | special


_SPECIAL: dict[str, dict[str, Any]] = {
    "TimeSensorAsync": {"target_time": dt.time(1)},
    "DayOfWeekSensor": {"week_day": "Monday"},
    "EC2InstanceStateSensor": {"target_state": "running"},
    "OpenSearchServerlessCollectionActiveSensor": {"collection_id": "x"},
    "RdsSnapshotExistenceSensor": {"db_type": "instance"},
    "S3KeySensor": {"bucket_key": "s3://bucket/key"},
    "LambdaFunctionStateSensor": {"function_name": "f"},
    "RdsDbSensor": {"db_identifier": "x"},
    "BigtableTableReplicationCompletedSensor": {"instance_id": "i", "table_id": "t"},
}


def _placeholder(name: str, annotation: str) -> Any:
    if name == "external_ids" or annotation.startswith(("list", "Sequence", "set", "Iterable")):
        return ["x"]
    if annotation.startswith(("int", "float")):
        return 1
    if "timedelta" in annotation:
        return dt.timedelta(days=1)
    if "datetime" in annotation:
        return dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    return {} if annotation.startswith(("dict", "Mapping")) else "x"


def _reaches_base(cls: type) -> bool:
    """Whether its execute gets to the base class's."""
    for base, function in _own_functions(cls, "execute"):
        if "super().execute" not in _source(function):
            return False
        if base.__module__ == "airflow.sdk.bases.sensor":
            break
    return True


def _reads_context(cls: type, may_hand_on: bool) -> str | None:
    """Say what its poke does with the template context.

    :param may_hand_on: whether it may be handed on: to a callable that need not be given.
    """
    seen: set[str] = set()
    waiting = ["poke"]
    while waiting:
        method = waiting.pop()
        if method in seen:
            continue
        seen.add(method)
        for _, function in _own_functions(cls, method):
            tree = ast.parse(_source(function))
            for node in ast.walk(tree):
                if isinstance(node, ast.Subscript) and _is_context(node.value):
                    return f"its poke reads {_quoted(node.slice)} from the template context"
                if isinstance(node, ast.Call):
                    called = ast.unparse(node.func)
                    if called == "context.get":
                        return f"its poke reads {_quoted(node.args[0])} from the template context"
                    handed_on = any(_is_context(value) for value in [*node.args, *(k.value for k in node.keywords)])
                    if called.startswith(("self.", "super().")) and hasattr(cls, called.rpartition(".")[2]):
                        waiting.append(called.rpartition(".")[2])
                    elif handed_on and not may_hand_on:
                        return f"its poke hands the template context to `{called}`"
    return None


def _quoted(node: ast.AST) -> str:
    return f"`{ast.unparse(node)}`".replace("'", "")


def _is_context(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "context"


def _own_functions(cls: type, name: str) -> Iterator[tuple[type, Any]]:
    """Yield the functions of a name in the providers' classes, the nearest first, as far as each asks its base."""
    for base in cls.__mro__:
        function = vars(base).get(name)
        function = getattr(function, "fget", None) or getattr(function, "func", None) or function
        if not base.__module__.startswith("airflow.providers.") or not inspect.isfunction(function):
            continue
        yield base, function
        if f"super().{name}" not in _source(function):
            return


def _source(function: Any) -> str:
    return textwrap.dedent(inspect.getsource(inspect.unwrap(function)))


if __name__ == "__main__":
    sys.exit(main())
