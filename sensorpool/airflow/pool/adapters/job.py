"""Jobs that operators have submitted (`resumable_job`)."""

from collections.abc import Mapping
from typing import Any, ClassVar

from sensorpool.airflow import compat
from sensorpool.airflow.errors import OnlyOnWorker
from sensorpool.airflow.pool.adapters.kept import Kept
from sensorpool.airflow.proof import supervisor, task_reads
from sensorpool.airflow.proof.rebuild import build
from sensorpool.errors import HandBack, InfraFailure
from sensorpool.instrumentation.redaction import one_line

EXTERNAL_ID = "__external_id__"


class Job(Kept):
    """Stands in for an operator in the pool: lands when its job is over, well or not."""

    __slots__ = ("_external_id",)
    operator_class: ClassVar[Any]

    def __init__(self, **poke_context: Any) -> None:
        self._external_id = poke_context.pop(EXTERNAL_ID)
        super().__init__(poke_context)

    def build(self) -> Any:
        """Build the operator."""
        return build(self.operator_class, self._arguments)

    def poke(self, _: Mapping[str, Any]) -> bool:
        """Whether the job is over.

        :raises InfraFailure: when its status cannot be had: the native operator asks again, too.
        :raises HandBack: when only its worker can ask for it.
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
        # without what a context may keep of it: the worker has tried whether that will do
        with task_reads.insisting(operator, self.may_miss, self.of_environment):
            return operator, operator.get_job_status(self._external_id, {})


def adapt(cls: type) -> type[Job]:
    """Return what is poked in the place of an operator with ``ResumableJobMixin``."""
    compat.become_server()
    supervisor.stand_in()
    return job_of(cls)


def job_of(cls: type) -> type[Job]:
    """Return the jobs of an operator's class."""
    return type(f"JobOf{cls.__name__}", (Job,), {"__slots__": (), "operator_class": cls})
