"""Write docs/sensors.md: every sensor class of the installed providers, and whether it can be pooled.

The same goes into the table that the pattern `airflow.providers.*` stands for (`sensorpool/airflow/catalog.py`).
Each class is constructed with placeholders for its arguments, and checked as on a worker: there is no list of classes.
Whether its poke reads the template context is looked up in its source (`context_in_poke`). ``--check`` fails if the
page or the table is stale. Needs Airflow and the providers: the environment of `make e2e`.
"""

import datetime as dt
import importlib
import inspect
import json
import logging
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a script, too
from tools import a_callable, context_in_poke  # noqa: E402

PAGE = ROOT / "docs" / "sensors.md"
TABLE = ROOT / "sensorpool" / "airflow" / "proved_sensors.json"
HEAD = """# Which sensors can be pooled

This page lists every sensor class of the installed providers in the versions named. `python tools/sensors_reference.py`
generates it, and a test keeps it fresh.

- **poolable**: the sensor can be rebuilt from its constructor's arguments, and its poke needs nothing else.
- **poolable if**: the same, on that condition. A callable that is **given by name** is a function that the pool can
  import and that `callables_enabled` lists ([callables](airflow.md#callables)).
- **by exact name, if**: the same, for a class that only calls a callable. No pattern enables it.
- **gate**, **gate if**: it waits in the pool, and when it lands its task pokes once more on a worker, for the reason
  given ([gates](airflow.md#gates)).
- **by itself**: it always defers, and needs neither a slot nor the pool.
- **native**: it runs on its worker, for the reason given.

By default `[sensorpool] sensors_enabled` enables all classes that are poolable or at a gate here, and
{operators}. Other classes, and derived ones, need their exact names
([patterns](airflow.md#patterns)).

The last column says where a sensor with `deferrable=True` waits if `[sensorpool] deferrable = pool` is set: in the
**pool**, or **native** in the triggerer ([deferrable sensors](airflow.md#deferrable-sensors)).

Of the {all} classes {out} leave their slot: {pooled} wait in the pool, {gates} of them at a gate, and {selves} always
defer by themselves. Of the others {rest} do with `deferrable=True`.

Each task is proved once more on its worker. Arguments that JSON cannot represent, or returns as another type (an enum's
member, a `pendulum` time, a `Path`), keep a sensor on its worker. Reasons against a class apply to derived classes too.
Classes derived from `DateTimeSensor`, `TimeSensor` and `TimeDeltaSensor` are native.
"""


class Entry(NamedTuple):
    """The page's row for one class.

    :param deferrable: where one with ``deferrable=True`` waits with `deferrable = pool`; empty: it takes none.
    """

    name: str
    pooled: str
    reason: str
    deferrable: str = ""


def main() -> int:
    """Write the page and the table, or check them."""
    found = look()
    for path, text in ((PAGE, page(found)), (TABLE, table(found))):
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path.relative_to(ROOT)} is stale: run `python tools/sensors_reference.py`", file=sys.stderr)
            return 1
    return 0


class Look(NamedTuple):
    """What was found of one provider: its version, its sensors, the bases of these, and what cannot be imported."""

    provider: str
    version: str
    entries: dict[str, Entry]
    bases: list[str]
    missing: dict[str, str]


def look() -> list[Look]:
    """Look at the installed providers that have sensors."""
    found = []
    with _quietly():
        for provider, version in _providers():
            missing = _import_sensors(provider)
            entries = {_path(cls): judge(cls) for cls in _classes(provider)}
            bases = sorted(_path(cls) for cls in _every_class(provider) if _is_base(cls))
            if entries or missing:
                found.append(Look(provider, version, entries, bases, missing))
    if not found:
        raise SystemExit("no provider of Airflow is installed here: run it in the environment of `make e2e`")
    return found


def page(found: list[Look]) -> str:
    """Return the page."""
    from sensorpool.airflow.configuration import WAITING_OPERATORS

    operators = [f"`{path.rpartition('.')[2]}`" for path in WAITING_OPERATORS]
    parts, missing = [HEAD.format(operators=" and ".join(operators), **counts(found))], {}
    for one in found:
        missing |= one.missing
        if one.entries:
            parts.append(f"\n## {one.provider.removeprefix('airflow.providers.')} ({one.version})\n\n")
            parts.append("| class | in the pool | why | `deferrable=True` |\n| --- | --- | --- | --- |\n")
        parts += [
            f"| `{row.name}` | {row.pooled} | {row.reason} | {row.deferrable} |\n"
            for row in sorted(one.entries.values())
        ]
    if missing:
        parts.append("\n## Not looked at\n\nThese modules cannot be imported here:\n\n")
        parts += [f"- `{module}`: {why}\n" for module, why in sorted(missing.items())]
    return "".join(parts)


def counts(found: list[Look]) -> dict[str, int]:
    """Return how many classes there are of each kind."""
    rows = [row for one in found for row in one.entries.values()]
    selves = [row for row in rows if row.pooled == "by itself"]
    native = [row for row in rows if row.pooled == "native"]
    return {
        "all": len(rows),
        "out": len(rows) - len(native),
        "pooled": len(rows) - len(native) - len(selves),
        "gates": sum(row.pooled.startswith("gate") for row in rows),
        "selves": len(selves),
        "rest": sum("deferrable=True" in row.reason for row in native),
    }


def table(found: list[Look]) -> str:
    """Return the table: what patterns stand for, as JSON."""
    made = {}
    for one in found:

        def names(paths: Iterable[str], provider: str = one.provider) -> list[str]:
            return sorted(path.removeprefix(f"{provider}.") for path in paths)

        entries = one.entries.items()
        pooled = {path for path, entry in entries if entry.pooled.startswith("poolable")}
        # a decorated sensor runs a callable: no pattern enables it
        gates = {path for path, entry in entries if entry.pooled.startswith("gate") and ".decorators." not in path}
        native = one.entries.keys() - pooled - gates
        kinds = {"poolable": names(pooled), "gates": names(gates), "bases": names(one.bases), "native": names(native)}
        made[one.provider] = {"version": one.version} | kinds
    return json.dumps(made, indent=1) + "\n"


def judge(cls: type) -> Entry:
    """Return the row that says whether a class can be pooled."""
    from sensorpool.airflow.errors import NotPoolable
    from sensorpool.airflow.proof import gates, known_sensors

    def say(pooled: str, reason: str = "") -> Entry:
        return Entry(cls.__qualname__, pooled, reason)

    def say_native(why: str) -> Entry:
        more = "; with `deferrable=True` it defers by itself" if "deferrable" in _parameters(cls) else ""
        return say("native", why + more)

    if not context_in_poke.reaches_base(cls, "execute"):
        if "deferrable" not in _parameters(cls) and "self.defer(" in inspect.getsource(cls.execute):  # type: ignore[attr-defined]
            return say("by itself")
        return say_native("its `execute` never calls that of BaseSensorOperator")
    by_name = _callables_by_name(cls)
    condition = "by exact name, if" if by_name else "poolable if"
    required = {
        name: _placeholder(name, parameter)
        for name, parameter in _parameters(cls).items()
        if parameter.default is inspect.Parameter.empty
    } | _SPECIAL.get(cls.__name__, {})
    sensor = _construct(cls, required)
    if getattr(sensor, "deferrable", False):
        return say("by itself")
    gate, told = gates.gate_of(sensor), []
    try:
        adapted = _condition_of(sensor).adapted
    except NotPoolable as error:
        if error.kind != "on_kill":
            return say_native(str(error))
        sensor = _construct(cls, required | {"mode": "reschedule"})
        adapted = _condition_of(sensor).adapted
        told.append("its mode is `reschedule`")
    conditions = set(known_sensors.COUNTS_SECONDS.get(_path(cls), ())[:1])
    objects = {name for name, parameter in _parameters(cls).items() if _is_object(parameter)}
    for name in sorted(objects - required.keys()):
        if gate is None and gates.gate_of(_construct(cls, required | {name: _a_lambda})) is not None:
            told.append(f"with `{name}` it waits at a gate")
            continue
        (by_name if _is_by_name(cls, required, name) else conditions).add(name)
        try:
            _condition_of(_construct(cls, required | {name: _a_lambda}))
        except NotPoolable:
            continue
        raise AssertionError(f"{_path(cls)} is pooled with a lambda for {name}")
    if not adapted:  # an adapter pokes in the place of the class, and does not need the context
        off = {name for name, parameter in _parameters(cls).items() if not parameter.default}
        for use in context_in_poke.uses(cls, off):
            if not by_name.isdisjoint(known_sensors.called_with_context(cls)):
                continue  # its task is asked what the callable takes
            if gate is not None and gate.pushes and _A_PUSH.fullmatch(use.what):
                continue
            if use.only_with is None:
                return say_native(f"its poke {use.what}")
            conditions.add(use.only_with)
    if by_name:
        *names, last = (f"`{name}`" for name in sorted(by_name))
        told.append(f"{', '.join(names)} and {last} are given by name" if names else f"{last} is given by name")
    if conditions:
        *names, last = (f"`{name}`" for name in sorted(conditions))
        told.append(f"{', '.join(names)} and {last} are not given" if names else f"{last} is not given")
    if gate is not None:
        entry = say("gate if" if told else "gate", "; ".join([*told, gate.why]))
    elif told and all(" it waits at a gate" in each for each in told):
        entry = say("poolable", "; ".join(told))
    else:
        entry = say(condition, "; ".join(told)) if told else say("poolable")
    if "deferrable" in _parameters(cls):
        why = "it does more at its end without" if gate is not None else known_sensors.reason_to_defer(cls)
        entry = entry._replace(deferrable="pool" if why is None else f"native: {why}")
    return entry


_A_PUSH = re.compile(r"reads `ti` from the template context|hands the template context to `\w+\.persist`")


def _is_by_name(cls: type, required: dict[str, Any], name: str) -> bool:
    """Whether an argument may be a function that the pool imports by name."""
    from sensorpool.airflow.errors import NotPoolable

    if "Callable" not in str(_parameters(cls)[name].annotation):
        return False
    try:
        return bool(_condition_of(_construct(cls, required | {name: a_callable.answer})))
    except NotPoolable:
        return False


def _callables_by_name(cls: type) -> set[str]:
    """Return the arguments that a class requires, and that are callables."""
    return {
        name
        for name, parameter in _parameters(cls).items()
        if parameter.default is inspect.Parameter.empty and _is_object(parameter)
    }


def _condition_of(sensor: Any) -> Any:
    """Return the condition of a sensor as on a worker on which the class is enabled."""
    from sensorpool.airflow.configuration import AirflowSettings
    from sensorpool.airflow.task import poolable
    from sensorpool.config.settings import Settings

    settings = Settings.load(sensors_enabled=_path(type(sensor)))
    ours = AirflowSettings(include=("*",), exclude=(), callables_enabled=(f"{a_callable.__name__}.answer",))
    return poolable.condition_of(sensor, _CONTEXT, settings, ours)


_MOMENT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_CONTEXT = {
    "logical_date": _MOMENT,
    "data_interval_end": _MOMENT,
    "dag_run": SimpleNamespace(logical_date=_MOMENT, run_after=_MOMENT),
}


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


class _quietly(warnings.catch_warnings):
    """Silences the warnings and logs of providers while they are imported and constructed."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)

    def __exit__(self, *exc_info: object) -> None:
        logging.disable(logging.NOTSET)
        super().__exit__(*exc_info)


def _providers() -> list[tuple[str, str]]:
    """Return the packages of the installed providers with their versions, Airflow's standard provider first."""
    found = {
        (entry.module.rpartition(".")[0], entry.dist.version)
        for entry in entry_points(group="apache_airflow_provider")
        if entry.module.startswith("airflow.providers.") and entry.dist is not None
    }
    return sorted(found, key=lambda one: (not one[0].endswith(".standard"), one))


_A_SENSOR = re.compile(r"^class (\w*Sensor|\w+\([^)]*Sensor)", re.MULTILINE)


def _import_sensors(provider: str) -> dict[str, str]:
    """Import all modules of a provider that define sensors; return why modules cannot be imported."""
    missing = {}
    for folder in importlib.import_module(provider).__path__:
        for path in sorted(Path(folder).rglob("*.py")):
            if _A_SENSOR.search(path.read_text()) is None:
                continue
            name = ".".join((provider, *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
            try:
                importlib.import_module(name)
            except Exception as error:
                missing[name] = " ".join(f"{type(error).__name__}: {error}".split()).partition(". ")[0]
    return missing


def _classes(provider: str) -> list[type]:
    return [cls for cls in _every_class(provider) if not _is_base(cls)]


def _every_class(provider: str) -> list[type]:
    from airflow.sdk.bases.sensor import BaseSensorOperator

    every = dict.fromkeys(_subclasses(BaseSensorOperator))
    return [cls for cls in every if cls.__module__.startswith(f"{provider}.")]


def _subclasses(cls: type) -> Iterator[type]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)


def _is_base(cls: type) -> bool:
    """Whether a class is only a base of other classes."""
    return inspect.isabstract(cls) or "BaseSensor" in cls.__name__


def _parameters(cls: type) -> dict[str, inspect.Parameter]:
    """Return the arguments of its constructors that are not arguments of every sensor."""
    from sensorpool.airflow.compat import operators

    found: dict[str, inspect.Parameter] = {}
    for base in reversed(cls.__mro__):
        if "__init__" in vars(base) and base.__module__.startswith("airflow.providers."):
            found |= inspect.signature(inspect.unwrap(vars(base)["__init__"])).parameters
    ordinary = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    skipped = operators.base_arguments() | {"self"}
    return {name: one for name, one in found.items() if one.kind in ordinary and name not in skipped}


def _is_object(parameter: inspect.Parameter) -> bool:
    """Whether an argument is a callable, and no value."""
    return re.search(r"Callable|Retry", str(parameter.annotation)) is not None or parameter.name == "hook"


_a_lambda = lambda *_: True  # noqa: E731  # it has no name


def _construct(cls: Any, arguments: dict[str, Any]) -> Any:
    """Construct a sensor, without the arguments that the class itself gives to its base."""
    from airflow.sdk import DAG

    arguments = dict(arguments)
    while True:
        try:
            with DAG("placeholder", schedule=None):
                return cls(task_id="placeholder", **arguments)
        except TypeError as error:
            by_itself = re.search(r"multiple values for keyword argument '(\w+)'", str(error))
            if by_itself is None or arguments.pop(by_itself[1], None) is None:
                raise


_SPECIAL: dict[str, dict[str, Any]] = {
    "TimeSensorAsync": {"target_time": dt.time(1)},
    "TimeSensor": {"target_time": dt.time(1)},
    "DayOfWeekSensor": {"week_day": "Monday"},
    "EC2InstanceStateSensor": {"target_state": "running"},
    "OpenSearchServerlessCollectionActiveSensor": {"collection_id": "x"},
    "RdsSnapshotExistenceSensor": {"db_type": "instance"},
    "S3KeySensor": {"bucket_key": "s3://bucket/key"},
    "LambdaFunctionStateSensor": {"function_name": "f"},
    "RdsDbSensor": {"db_identifier": "x"},
    "BigtableTableReplicationCompletedSensor": {"instance_id": "i", "table_id": "t"},
    "DecoratedSensorOperator": {"python_callable": a_callable.answer, "op_args": [], "op_kwargs": {}},
    "_DecoratedSFTPSensor": {"python_callable": a_callable.answer, "multiple_outputs": False},
}


def _placeholder(name: str, parameter: inspect.Parameter) -> Any:
    annotation = str(parameter.annotation)
    if _is_object(parameter):
        return a_callable.answer
    if name == "external_ids" or annotation.startswith(("list", "Sequence", "set", "Iterable")):
        return ["x"]
    if annotation.startswith(("int", "float")):
        return 1
    if "timedelta" in annotation:
        return dt.timedelta(days=1)
    if "datetime" in annotation:
        return _MOMENT
    return {} if annotation.startswith(("dict", "Mapping")) else "x"


if __name__ == "__main__":
    sys.exit(main())
