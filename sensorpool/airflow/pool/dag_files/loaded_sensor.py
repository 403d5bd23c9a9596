"""The sensor of a loaded DAG file: it stands in for the task's operator, in the process of the bundle."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from sensorpool.airflow.pool.adapters.sensor import NoContext, RebuiltSensor, derived
from sensorpool.airflow.proof.arguments import dag_file
from sensorpool.airflow.proof.state.sensor_state import Baseline
from sensorpool.airflow.proof.watch import process_state, task_reads


class LoadedSensor(RebuiltSensor):
    """Pokes a copy of a task's operator that has the rendered arguments.

    :raises HandBack: when what the file has here is another operator than the registered one.
    """

    __slots__ = ("_poke_context",)
    task: ClassVar[Any]

    def __new__(cls, /, **_: Any) -> Self:
        """Return an object of the class, which has the functions of its task already."""
        return object.__new__(cls)

    def __init__(self, **poke_context: Any) -> None:
        self._poke_context = poke_context
        super().__init__(**poke_context[dag_file.ARGUMENTS])

    def build(self) -> Any:
        """Copy the operator."""
        process_state.pool_state().restore()
        operator = task_reads.seal(dag_file.operator_of(self.task, self._poke_context))
        self.check_shared_state()
        self._baseline = None if self.is_untracked else Baseline(operator)
        self._is_new = True
        return operator

    def context(self, denied: list[str]) -> NoContext:
        """Return a template context that has what the functions take."""
        return _GivenContext(denied, dag_file.given_context(self._poke_context), self._poke_context[dag_file.ABSENT])


class _GivenContext(NoContext):
    """The template context in the pool, with the values that were registered.

    :param absent: names that the task's template context has not.
    """

    def __init__(self, denied: list[str], given: Mapping[str, Any], absent: list[str]) -> None:
        super().__init__(denied)
        self._given = given
        self._absent = absent

    def __getitem__(self, name: str) -> Any:
        return self._given[name] if name in self._given else self._deny()

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a name."""
        if name in self._absent:
            return default
        return self._given[name] if name in self._given else self._deny()

    def __contains__(self, name: object) -> bool:  # type: ignore[override]  # that of the base always raises
        if name not in self._absent and name not in self._given:
            self._deny()
        return name in self._given


def class_for(task: Any) -> type[LoadedSensor]:
    """Return the class of the sensors of a task of a loaded DAG file."""
    made: type[LoadedSensor] = derived(LoadedSensor, type(task), dag_file.functions_of(task))
    made.task = task
    return made
