"""A sensor of a DAG file as JSON: the file and its bundle, the rendered arguments, and what its function takes.

Its class or a function among its arguments is defined in the DAG file, or in a module of the bundle's folder, and has
no name by which another process could import it. So the pool loads the file (`sensorpool.airflow.pool.dag_files`),
takes the operator of the task, gives it the rendered arguments (`operator_of`), and compares all else with digests.
"""

import copy
import os
import sys
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any

import pendulum
from airflow.sdk.bases.operator import BaseOperator
from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow.compat import dag_bundles, operators, task_runtime
from sensorpool.airflow.compat.dag_bundles import DagFile
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.arguments import callables, external_inputs
from sensorpool.airflow.proof.codec import decode, encode
from sensorpool.airflow.proof.state import (
    bundle_files,
    code_digest,
    judged_class,
    references,
    shared_state,
    value_digest,
)
from sensorpool.airflow.proof.watch import process_start
from sensorpool.errors import HandBack
from sensorpool.instrumentation.redaction import one_line

SENSOR = "sensorpool.airflow.pool.dag_files.DagFileSensor"  # the class path that is registered
ARGUMENTS, CONTEXT, ABSENT, FILES, DIGEST, NESTED = "arguments", "context", "absent", "files", "digest", "nested"
STALE = "(this process has older code)"  # in the reason of a poke that another process of the bundle has to make
OLD_FILES = "(another process of the bundle would bring its newest files)"  # as STALE, if that has not just been tried
_KIND = "dag_file"
_MOMENTS = frozenset({"logical_date", "data_interval_start", "data_interval_end"})
# names of the template context whose values JSON can say
_GIVEN = _MOMENTS | {
    *("ds", "ds_nodash", "ts", "ts_nodash", "ts_nodash_with_tz"),
    *("run_id", "params", "task_instance_key_str"),
}


def takes_code_of(file: DagFile, sensor: BaseSensorOperator) -> bool:
    """Whether a function among a sensor's arguments is defined in its DAG file or its bundle's folder."""
    return any(is_of(file, function.__module__) for function in _functions(sensor))


def is_of(file: DagFile, module: Any) -> bool:
    """Whether a module is that of a DAG file, or lies in its bundle's folder."""
    if module == file.module:
        return True
    path = getattr(sys.modules.get(str(module)), "__file__", None)
    if not isinstance(path, str) or references.is_installed(path):
        return False
    return os.path.commonpath([os.path.realpath(path), file.folder]) == file.folder


def poke_context_of(sensor: BaseSensorOperator, context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the poke_context of a sensor that the pool takes from its DAG file.

    :raises NotPoolable: with the reason why it runs natively.
    """
    file = dag_bundles.dag_file_of(sensor, context)
    if file is None:
        raise NotPoolable("its DAG file is no plain file of its bundle", _KIND)
    if getattr(context.get("ti"), "map_index", -1) not in (-1, None):
        raise NotPoolable("it is mapped, and its DAG file has no operator for each map index", _KIND)
    for name, value in _own_arguments(sensor).items():
        if callable(value) and type(value) is not FunctionType:
            raise NotPoolable(f"its {name} is no plain function", "callable")
    arguments = _encoded_arguments(sensor)
    given, absent = _of_context(sensor, context)
    inputs = arguments | external_inputs.extra_arguments(sensor, arguments)
    found = {
        "bundle": file.bundle,
        "version": file.version,
        "path": file.path,
        "module": file.module,
        "dag_id": sensor.dag_id,
        "task_id": sensor.task_id,
        "class": _class_of(sensor),
        ARGUMENTS: external_inputs.with_team(inputs, task_runtime.team_of(context)),
        CONTEXT: given,
        ABSENT: absent,
        NESTED: _nested(sensor),
    }
    return found if file.version is not None else found | _content(file)


def with_first_poke(
    sensor: BaseSensorOperator, context: Mapping[str, Any], poke_context: Mapping[str, Any], *found: Any
) -> dict[str, Any]:
    """Return a poke_context that says what the first poke found.

    :param found: as `external_inputs.with_first_poke` takes it.
    :raises NotPoolable: when the poke has imported more of the bundle's folder, which no digest has.
    """
    file = dag_bundles.dag_file_of(sensor, context)
    more = bundle_files.loaded_from(file.folder) - set(poke_context.get(FILES, ())) if file is not None else set()
    if more and FILES in poke_context:
        why = f"its poke imports {min(more)} of its bundle's folder: import it at the top of its DAG file"
        raise NotPoolable(why, _KIND)
    for name, value in poke_context[CONTEXT].items():
        now = dict(context[name]) if name == "params" else context[name]
        if encode(now, name) != value:
            raise NotPoolable(f"its poke changes {name} of its template context: it is stateful", "stateful")
    arguments = external_inputs.with_current_shared_state(sensor, poke_context[ARGUMENTS])
    return {**poke_context, ARGUMENTS: external_inputs.with_first_poke(arguments, *found)}


def names_given(poke_context: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the template context that a poke_context has, or says to be absent."""
    return frozenset(poke_context[CONTEXT]) | frozenset(poke_context[ABSENT])


def given_context(poke_context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the template context that a poke_context has, as the task got them; a new copy each time."""
    found = {name: decode(value) for name, value in poke_context[CONTEXT].items()}
    return {
        name: pendulum.instance(value, tz="UTC") if name in _MOMENTS and value is not None else value
        for name, value in found.items()
    }


def operator_of(task: Any, poke_context: Mapping[str, Any]) -> Any:
    """Return a copy of the task of a loaded DAG file, with the rendered arguments of a poke_context.

    :raises HandBack: when it is not the registered one.
    """
    if _class_of(task) != poke_context["class"]:
        raise HandBack(f"its task has another class in the pool: {_class_of(task)}")
    arguments = external_inputs.reordered(poke_context[ARGUMENTS])
    values = {name: decode(value) for name, value in arguments.items() if name != external_inputs.NAME}
    made = copy.copy(task)
    memo = {id(task): made, id(getattr(task, "dag", None)): getattr(task, "dag", None)}
    try:
        for name, value in operators.own_attributes(task).items():
            if name not in values:
                vars(made)[name] = copy.deepcopy(value, memo)
        for name, value in values.items():
            setattr(made, name, value)
        differing = external_inputs.differing_attribute(made, poke_context[ARGUMENTS])
        differing = differing or external_inputs.differing_shared_state(made, poke_context[ARGUMENTS])
        if differing is None and _nested(made) != poke_context[NESTED]:
            differing = "its code, or a value in its closures and defaults"
    except Exception as error:
        raise HandBack(f"its operator cannot be copied in the pool: {one_line(error)}") from None
    if differing is not None:
        raise HandBack(f"of its DAG file as it is loaded in the pool, {differing} is another one than on its worker")
    return made


def functions_of(task: BaseOperator) -> dict[str, FunctionType]:
    """Return the functions among the arguments of a task, under names of their own."""
    return {f"callable_{number}": function for number, function in enumerate(dict.fromkeys(_functions(task)))}


def _own_arguments(sensor: BaseOperator) -> dict[str, Any]:
    given = operators.constructor_arguments(sensor)
    return {name: given[name] for name in sorted(given.keys() - operators.base_arguments())}


def _functions(sensor: BaseOperator) -> Iterator[FunctionType]:
    for value in _own_arguments(sensor).values():
        yield from judged_class.functions_in(value)


def _class_of(sensor: Any) -> str:
    return f"{type(sensor).__module__}.{type(sensor).__qualname__}"


def _nested(sensor: BaseOperator) -> str:
    """Return a digest of which code it has, for much may have one name (``<lambda>``), and of what that holds."""
    which = [code_digest.digest_of(function.__code__) for function in functions_of(sensor).values()]
    judged = judged_class.judged_class_of(sensor)
    return value_digest.digest([which, code_digest.digest_of_code(judged), shared_state.digest_of_nested(judged)])


def _encoded_arguments(sensor: BaseSensorOperator) -> dict[str, Any]:
    """Return what differs from the operator of the DAG file: rendered fields, and what the class declares."""
    names = [name for name in sensor.template_fields if hasattr(sensor, name)]
    if known_sensors.declares_fields(type(sensor)):
        names += [name for name in known_sensors.declared_fields(type(sensor)) if name not in names]
    found: dict[str, Any] = {}
    for name in names:
        value = getattr(sensor, name)
        found[name] = encode(value, f"its argument {name}")
        if (other := _changed_type(value, decode(found[name]))) is not None:
            raise NotPoolable(f"its argument {name} holds a {other}, which JSON does not give back", _KIND)
    return found


def _changed_type(value: Any, decoded: Any) -> str | None:
    if type(value) is not type(decoded):
        return type(value).__qualname__
    if isinstance(value, dict):
        parts = zip(value.values(), decoded.values(), strict=True)
    elif isinstance(value, list | tuple):
        parts = zip(value, decoded, strict=True)
    else:
        return None
    return next((other for pair in parts if (other := _changed_type(*pair)) is not None), None)


def _of_context(sensor: BaseSensorOperator, context: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return what the functions among the arguments take of the template context, encoded, and what is not in it.

    :raises NotPoolable: when they take what no JSON can say.
    """
    if added := context.keys() - task_runtime.template_names():
        why = f"its template context has a name of its own, {min(added)}, which its callable may ask for"
        raise NotPoolable(why, "reads_context")
    given: dict[str, Any] = {}
    absent: list[str] = []
    for name in sorted(callables.names_taken(sensor)):
        if name not in _GIVEN:
            raise NotPoolable(
                f"its callable takes {name} of the template context, which only a worker has", "reads_context"
            )
        if name not in context:
            absent.append(name)
            continue
        value = context[name]
        if name == "params":
            value = dict(value)
        given[name] = encode(value, f"{name} of its template context")
        if name in _MOMENTS:
            if value is not None and (not isinstance(value, pendulum.DateTime) or value.timezone_name != "UTC"):
                raise NotPoolable(f"{name} of its template context is not in UTC", "reads_context")
        elif (other := _changed_type(value, decode(given[name]))) is not None:
            raise NotPoolable(f"{name} of its template context holds a {other}, which JSON does not give back", _KIND)
    return given, absent


def _content(file: DagFile) -> dict[str, Any]:
    """Return the files that the DAG file consists of here, with a digest of what they hold.

    :raises NotPoolable: when that cannot be told.
    """
    paths = sorted({file.path, *bundle_files.loaded_from(file.folder)})
    if len(paths) > bundle_files.MOST:
        raise NotPoolable(f"its DAG file imports more than {bundle_files.MOST} files of its bundle's folder", _KIND)
    try:
        digest = bundle_files.digest_of(bundle_files.contents_of(file.folder, paths))
        began = process_start.began()
        changed = None if began is None else bundle_files.changed_since(file.place, file.folder, paths, began)
    except OSError as error:
        raise NotPoolable(f"a file of its bundle cannot be read: {one_line(error)}", _KIND) from None
    if changed is not None:
        raise NotPoolable(f"{changed} of its bundle has changed since its process started", _KIND)
    return {FILES: paths, DIGEST: digest}
