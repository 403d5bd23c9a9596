"""A sensor as JSON, and the sensor built again from that, without code for each class.

The JSON holds the arguments of the constructor, with templates rendered. The worker proves before it registers that
they make the same sensor: all attributes of the sensor built again must be the same.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from inspect import Parameter, signature
from types import FunctionType
from typing import Any

from airflow.sdk.bases.operator import BaseOperator
from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow.compat import operators
from sensorpool.airflow.errors import LookupUnavailable, NotPoolable, OnlyOnWorker
from sensorpool.airflow.proof import gates, known_sensors
from sensorpool.airflow.proof.arguments import callables, external_inputs, mapping_order, template_defaults
from sensorpool.airflow.proof.codec import NameOf, decode, encode
from sensorpool.airflow.proof.state import equality, opaque_state, shared_state
from sensorpool.airflow.proof.state.judged_class import judged_class_of
from sensorpool.airflow.proof.state.opaque_state import Unreadable
from sensorpool.airflow.proof.watch import denials, environment_reads, task_reads
from sensorpool.airflow.proof.watch.denials import Denials
from sensorpool.config.defaults import INFRA_FAILURES
from sensorpool.errors import HandBack, NotReady
from sensorpool.instrumentation.redaction import one_line
from sensorpool.poke.answer import Answers

_TASK_ID = "sensorpool"
_NONE: callables.Found = {}
_BY_ITSELF = re.compile(r"multiple values for keyword argument '(\w+)'")


def poke_context_of(sensor: BaseSensorOperator) -> dict[str, Any]:
    """Return a sensor's poke_context: a JSON object that it can be built from.

    If the class has AIP-17's ``poke_context_fields``, these attributes are the arguments.

    :raises NotPoolable: when no JSON can hold an argument, or the sensor built from them differs.
    """
    with shared_state.kept_unchanged(judged_class_of(sensor)):
        return _poke_context_of(sensor)


def _poke_context_of(sensor: BaseSensorOperator) -> dict[str, Any]:
    arguments, again = environment_reads.build_checked(lambda: _rebuilt(sensor, _arguments(sensor), callables.name_of))
    if known_sensors.declares_fields(type(sensor)):
        of_sensor, of_again = _arguments(sensor), _arguments(again)
    else:
        of_sensor, of_again = _compared(sensor, sensor), _compared(again, sensor)
    if (name := equality.difference(of_sensor, of_again)) is not None:
        if name in of_sensor and not _is_readable(of_sensor[name]):
            raise NotPoolable(
                f"its attribute {name} holds state that cannot be read: {type(of_sensor[name]).__qualname__}"
            )
        raise NotPoolable(f"built again from its arguments, its attribute {name} is another one")
    return _with_external_inputs(again, arguments)


def arguments_of(operator: BaseOperator, names: Collection[str] | None) -> dict[str, Any]:
    """Return arguments of an operator as a JSON object that it can be built from.

    :param names: the names of the arguments; None for all.
    :raises NotPoolable: when no JSON can hold them, or the operator cannot be built from them.
    """
    arguments = _arguments(operator)
    if names is not None:
        arguments = {name: arguments[name] for name in arguments if name in names}
        encoded: dict[str, Any] = environment_reads.build_checked(lambda: _rebuilt(operator, arguments))[0]
        return encoded
    with shared_state.kept_unchanged(judged_class_of(operator)):
        arguments, again = environment_reads.build_checked(lambda: _rebuilt(operator, arguments))
        return _with_external_inputs(again, arguments)


def _with_external_inputs(again: BaseOperator, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return encoded arguments with the external inputs of an operator that was built from them.

    :raises NotPoolable: when the operator cannot be built from the result.
    """
    more = external_inputs.extra_arguments(again, arguments)
    if more:
        extended = arguments | more
        try:
            name = external_inputs.differing_attribute(rebuild(type(again), extended), extended)
        except Exception as error:
            if not more[external_inputs.NAME]:
                return arguments  # the class takes no such argument, and needs none
            raise NotPoolable(f"it cannot be built again from its arguments: {one_line(error)}") from None
        if name is not None:
            raise NotPoolable(f"built again from its arguments, its attribute {name} is another one")
    return arguments | more


def with_first_poke(
    cls: Any,
    poke_context: dict[str, Any],
    names: Collection[str] | None,
    of_environment: Collection[str] = (),
    hooks: Iterable[type] = (),
) -> dict[str, Any]:
    """Return a poke_context that says what the first poke found.

    :param names: the Connections and Variables that it did not find; None if there was no first poke.
    :param of_environment: those that it found in the environment.
    :param hooks: the classes of companies' hooks that it got.
    :raises NotPoolable: when the class takes no argument that could hold them.
    """
    extended = external_inputs.with_first_poke(poke_context, names, of_environment, hooks)
    if not _takes_inputs(cls, poke_context, extended):
        if not names:
            return poke_context
        why = "its poke does without a Connection or Variable that is missing, and its class takes no `doc`"
        raise NotPoolable(f"{why} to tell the pool so")
    return extended


def with_team(cls: Any, poke_context: dict[str, Any], team: str | None) -> dict[str, Any]:
    """Return a poke_context that says of which team its task is; None: of none.

    :raises NotPoolable: when the class takes no argument that could hold that.
    """
    extended = external_inputs.with_team(poke_context, team)
    if not _takes_inputs(cls, poke_context, extended):
        raise NotPoolable(f"it is of the team {team}, and its class takes no `doc` to tell the pool so", "team")
    return extended


def _takes_inputs(cls: Any, poke_context: Mapping[str, Any], extended: Mapping[str, Any]) -> bool:
    """Whether a class takes the argument for external inputs, where a poke_context gets its first."""
    if extended == poke_context or external_inputs.NAME in poke_context:
        return True
    try:
        rebuild(cls, extended)
    except Exception:
        return False
    return True


def _rebuilt(
    operator: BaseOperator, arguments: Mapping[str, Any], name_of: NameOf | None = None
) -> tuple[dict[str, Any], Any]:
    """Return arguments as JSON, and the operator built from that."""
    own = signature(type(operator).__init__).parameters
    encoded: dict[str, Any] = {}
    left_out: NotPoolable | None = None
    for name, value in arguments.items():
        try:
            encoded[name] = encode(value, f"its argument {name}", name_of=name_of)
        except NotPoolable as error:
            if name in own:
                raise
            left_out = error  # the class itself may pass this to its base, and do so again
    while True:
        try:
            return encoded, rebuild(type(operator), _as_registered(encoded))
        except Exception as error:
            by_itself = _BY_ITSELF.search(str(error))
            if by_itself is None or encoded.pop(by_itself[1], None) is None:
                if left_out is not None:
                    raise left_out from None
                raise NotPoolable(f"it cannot be built again from its arguments: {one_line(error)}") from None


def _as_registered(encoded: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as the pool gets them: canonical, with the order of their mappings restored."""
    arguments: dict[str, Any] = json.loads(json.dumps(encoded, sort_keys=True))
    return mapping_order.restore(arguments, mapping_order.as_word(encoded))


def rebuild(cls: Any, poke_context: Mapping[str, Any], find: Callable[[Any], FunctionType] = callables.imported) -> Any:
    """Build a sensor from its poke_context.

    :param find: returns the function of a name in it.
    :raises Exception: whatever its constructor raises.
    """
    arguments = external_inputs.reordered(poke_context)
    try:
        return cls(task_id=_TASK_ID, **{name: decode(value, find) for name, value in arguments.items()})
    except SystemExit as error:  # of a constructor that takes no other task_id, perhaps
        raise ValueError(f"its constructor ends the process: SystemExit: {error}") from None


def build_in_pool(cls: Any, poke_context: Mapping[str, Any], functions: callables.Found = _NONE) -> Any:
    """Build in the pool, without a task (`task_reads`), a sensor that was proved on its worker.

    :param functions: those that its poke_context names.
    :raises HandBack: when this process cannot build it, or builds another one: its worker has another environment.
    :raises Exception: an error that says that a backend did not answer.
    """
    try:
        # a lookup that only the worker finds shows in the attributes
        in_environment = external_inputs.lookups_in_environment(poke_context)
        team = external_inputs.team_of(poke_context)
        with Denials(of_environment=in_environment, asker=denials.CONSTRUCTOR, team=team) as denied_here:
            operator = rebuild(cls, poke_context, functions.__getitem__)
            name = external_inputs.differing_attribute(
                operator, poke_context
            ) or external_inputs.differing_shared_state(operator, poke_context)
        if denied_here.unavailable is not None:
            raise NotReady(denied_here.unavailable)
        if denied_here.denied:
            raise OnlyOnWorker(denied_here.denied[0])
        if name is None:
            return task_reads.seal(operator)
    except LookupUnavailable as error:
        raise NotReady(str(error)) from None
    except (Exception, SystemExit, OnlyOnWorker) as error:
        if Answers(INFRA_FAILURES).is_infra_failure(error):
            raise
        raise HandBack(f"it cannot be built in the pool from its arguments: {one_line(error)}") from None
    raise HandBack(f"built in the pool, its attribute {name} is another one than on its worker")


def _arguments(sensor: BaseOperator) -> dict[str, Any]:
    if known_sensors.declares_fields(type(sensor)):
        fields = known_sensors.declared_fields(type(sensor))
        missing = [name for name in fields if not hasattr(sensor, name)]
        if missing:
            raise NotPoolable(f"its poke_context_fields name {missing[0]}, which it does not have")
        return {name: getattr(sensor, name) for name in fields}
    parameters = signature(type(sensor).__init__).parameters
    arguments: dict[str, Any] = {}
    rendered = template_defaults.defaults_of(sensor)
    for name, value in {**rendered, **operators.constructor_arguments(sensor)}.items():
        if name in operators.base_arguments():
            continue
        # the constructor got the DAG file's arguments; the attributes are rendered
        given = getattr(sensor, name) if name in sensor.template_fields and hasattr(sensor, name) else value
        if name in parameters and name not in rendered and _is_default(parameters[name], given):
            continue  # a default that is given is the same condition
        arguments[name] = given
    for name in known_sensors.prepared(type(sensor)):
        arguments[name] = getattr(sensor, name)
    for name, value in gates.instead_of(sensor).items():
        arguments.pop(name, None)
        if value is not None:
            arguments[name] = value
    return arguments


def _compared(one: BaseOperator, sensor: BaseOperator) -> dict[str, Any]:
    """Return the attributes in which a sensor and the one that is built again have to agree."""
    left_out = gates.instead_of(sensor).keys() | known_sensors.set_by_execute(type(sensor))
    return {name: value for name, value in operators.own_attributes(one).items() if name not in left_out}


def _is_default(parameter: Parameter, value: Any) -> bool:
    default = parameter.default
    if default is value:
        return True
    return type(default) is type(value) and isinstance(value, str | int | float) and bool(default == value)


def _is_readable(value: Any) -> bool:
    try:
        opaque_state.read(value)
    except Unreadable:
        return False
    return True
