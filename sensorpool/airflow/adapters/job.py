"""Jobs that operators have submitted (`resumable_job`)."""

from collections.abc import Mapping
from typing import Any, ClassVar

from sensorpool.airflow import compat
from sensorpool.airflow.rebuild import rebuild
from sensorpool.errors import InfraFailure

EXTERNAL_ID = "__external_id__"


class Job:
    """Stands in for an operator in the pool: lands when its job is over, well or not."""

    __slots__ = ("_external_id", "_operator")
    operator_class: ClassVar[Any]

    def __init__(self, **poke_context: Any) -> None:
        self._external_id = poke_context.pop(EXTERNAL_ID)
        self._operator = rebuild(self.operator_class, poke_context)

    def poke(self, _: Mapping[str, Any]) -> bool:
        """Whether the job is over.

        :raises InfraFailure: when its status cannot be had: the native operator asks again, too.
        """
        try:
            # without what a context may keep of it: the worker has tried whether that will do
            status = self._operator.get_job_status(self._external_id, {})
        except Exception as error:
            raise InfraFailure(f"{type(error).__name__}: {error}") from error
        return not self._operator.is_job_active(status)


def adapt(cls: type) -> type[Job]:
    """Return what is poked in the place of an operator with ``ResumableJobMixin``."""
    compat.become_server()
    return job_of(cls)


def job_of(cls: type) -> type[Job]:
    """Return the jobs of an operator's class."""
    return type(f"JobOf{cls.__name__}", (Job,), {"__slots__": (), "operator_class": cls})
