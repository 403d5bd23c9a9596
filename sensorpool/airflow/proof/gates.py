"""Sensors that wait at a gate: the pool sees that their condition holds, and then their task's own poke decides.

Such a poke does more than answer: it leaves something for the rest of its ``execute``, pushes XComs (links, what it has
found), or calls a function of its task. Natively the poke that lands does so. Here the pool's poke only opens the gate:
the task resumes, and pokes once on its worker. If that finds nothing, it waits in the pool again (`task.gate`).

A poke that takes something away, a message or a file, must not be made twice. So there is a gate only for classes that
were read, and for a company's classes that `gates_enabled` lists.
"""

from collections.abc import Collection, Mapping
from inspect import signature
from typing import Any, NamedTuple

from sensorpool.airflow.compat import operators
from sensorpool.airflow.proof import known_sensors

_PROVIDERS = "airflow.providers."


class Gate(NamedTuple):
    """How the sensors of a class wait at a gate.

    :param why: what its poke does for its task, or its execute with its last poke.
    :param pushes: whether its poke pushes XComs; the pool's does not.
    :param instead: arguments that are others for the pool's poke: what they do is for the task's own. None: the
        argument is left out.
    :param only_with: the argument without which there is no need for a gate.
    :param poked_as: the path of the base that the pool pokes in the place of the class.
    :param confirms_errors: whether the task pokes after an error of the pool's poke, too.
    """

    why: str
    pushes: bool = False
    instead: Mapping[str, Any] = {}
    only_with: str | None = None
    poked_as: str | None = None
    confirms_errors: bool = False


_AFTER = Gate("its execute works with what its last poke left")
_PUSHES = Gate("its poke pushes XComs", pushes=True)
_CALLS = Gate(
    "its `python_callable` is called once it lands",
    instead={"python_callable": None, "op_args": None, "op_kwargs": None},
    only_with="python_callable",
)

GATES = {
    f"{_PROVIDERS}{name}": gate
    for name, gate in {
        "amazon.aws.sensors.emr.EmrJobFlowSensor": _PUSHES,
        "amazon.aws.sensors.emr.EmrStepSensor": _PUSHES,
        "amazon.aws.sensors.step_function.StepFunctionExecutionSensor": _PUSHES,
        # the log of the job is for the task's log, and a job that failed is to have it there too
        "amazon.aws.sensors.sagemaker.SageMakerTrainingSensor": Gate(
            "its poke prints the log of its job",
            instead={"print_log": False},
            only_with="print_log",
            confirms_errors=True,
        ),
        "google.cloud.sensors.bigtable.BigtableTableReplicationCompletedSensor": _PUSHES,
        "google.cloud.sensors.cloud_storage_transfer_service.CloudDataTransferServiceJobStatusSensor": _PUSHES,
        "google.cloud.sensors.gcs.GCSObjectExistenceSensor": _AFTER,
        "google.cloud.sensors.gcs.GCSObjectsWithPrefixExistenceSensor": _AFTER,
        "sftp.decorators.sensors.sftp._DecoratedSFTPSensor": _CALLS._replace(
            poked_as=f"{_PROVIDERS}sftp.sensors.sftp.SFTPSensor"
        ),
        "sftp.sensors.sftp.SFTPSensor": _CALLS,
    }.items()
}


def known_gate(cls: type) -> Gate | None:
    """Return the gate of a class or a base of it, whether or not each of its sensors needs one."""
    return next((GATES[name] for name in known_sensors.class_paths(cls) if name in GATES), None)


def gate_of(sensor: Any, enabled: Collection[str] = ()) -> Gate | None:
    """Return the gate that a sensor waits at; None if it needs none, or may have none.

    :param enabled: the setting `gates_enabled`.
    """
    cls = type(sensor)
    known = _needed_gate(sensor)
    if known_sensors.class_paths(cls)[0] in enabled:
        return known or _AFTER
    return known if known_sensors.is_reviewed(cls) else None


def instead_of(sensor: Any) -> Mapping[str, Any]:
    """Return the arguments that are others for the pool's poke."""
    known = _needed_gate(sensor)
    return {} if known is None else known.instead


def reason_against(sensor: Any, enabled: Collection[str] = ()) -> str | None:
    """Return why a sensor that needs a gate may have none; None if it may, or needs none."""
    known = _needed_gate(sensor)
    if known is None or gate_of(sensor, enabled) is not None:
        return None
    base = next(name for name in known_sensors.class_paths(type(sensor)) if name in GATES)
    return (
        f"as in its base {base.rpartition('.')[2]}, {known.why}: "
        "list it in [sensorpool] gates_enabled if its poke may be made twice"
    )


def poked_by_pool(sensor: Any) -> Any:
    """Return the sensor that the pool pokes for a sensor: itself, or one of a base that is built from its attributes.

    :raises Exception: whatever the constructor of that base raises.
    """
    known = _needed_gate(sensor)
    path = None if known is None else known.poked_as
    base = next((base for base in type(sensor).__mro__ if f"{base.__module__}.{base.__qualname__}" == path), None)
    if known is None or base is None:
        return sensor
    names = signature(base.__init__).parameters.keys() - operators.base_arguments() - known.instead.keys()  # type: ignore[misc]
    attributes = vars(sensor)
    return base(task_id=sensor.task_id, **{name: attributes[name] for name in names if name in attributes})


def _needed_gate(sensor: Any) -> Gate | None:
    known = known_gate(type(sensor))
    if known is not None and known.only_with is not None and not getattr(sensor, known.only_with, None):
        return None
    return known
