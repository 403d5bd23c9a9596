"""Jobs that operators have submitted (`task.resumable_job`)."""

from collections.abc import Mapping
from typing import Any, ClassVar

from sensorpool.airflow.compat import server_process
from sensorpool.airflow.errors import OnlyOnWorker
from sensorpool.airflow.pool.adapters.kept_operator import KeptOperator
from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.arguments.rebuild import build_in_pool
from sensorpool.airflow.proof.watch import supervisor_requests
from sensorpool.errors import HandBack, InfraFailure
from sensorpool.instrumentation.redaction import one_line

EXTERNAL_ID = "__external_id__"


class Job(KeptOperator):
    """Stands in for an operator in the pool; it lands when the job is over, successful or not."""

    __slots__ = ("_external_id",)
    operator_class: ClassVar[Any]

    def __init__(self, **poke_context: Any) -> None:
        self._external_id = poke_context.pop(EXTERNAL_ID)
        super().__init__(poke_context)

    def build(self) -> Any:
        """Build the operator."""
        return build_in_pool(self.operator_class, self._arguments)

    def poke(self, _: Mapping[str, Any]) -> bool:
        """Whether the job is over.

        :raises InfraFailure: when its status cannot be read: the native operator asks again, too.
        :raises HandBack: when only a worker can ask for the status.
        """
        try:
            operator, status = self.use(self._ask)
        except OnlyOnWorker as error:
            raise HandBack(str(error)) from None
        except HandBack:
            raise
        except Exception as error:
            raise InfraFailure(one_line(error)) from error
        return not operator.is_job_active(status)

    def _ask(self, operator: Any) -> tuple[Any, Any]:
        # with an empty context: the worker has tried that it suffices
        with self.raising_denials(operator):
            return operator, operator.get_job_status(self._external_id, {})


def adapt(cls: type) -> type[Job]:
    """Return what is poked in the place of an operator with ``ResumableJobMixin``."""
    server_process.become_server()
    supervisor_requests.stand_in()
    return job_of(cls)


def job_of(cls: type) -> type[Job]:
    """Return the class of the jobs of an operator's class."""
    path = f"{cls.__module__}.{cls.__qualname__}"
    is_stateless = path in known_sensors.JOB_ARGUMENTS or known_sensors.is_stateless(cls)
    attributes = {"__slots__": (), "operator_class": cls, "is_stateless": is_stateless}
    return type(f"JobOf{cls.__name__}", (Job,), attributes)
