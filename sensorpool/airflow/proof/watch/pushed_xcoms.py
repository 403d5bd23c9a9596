"""The ``ti`` of the template context for a poke at a gate that pushes XComs (`proof.gates`): it may do no more.

On the worker an XCom is pushed, and any other use of ``ti`` is noted. In the pool nothing is pushed, for the pool's
poke has no task; the task's own poke pushes where it resumes.
"""

from collections.abc import Callable
from typing import Any

from sensorpool.airflow.proof.watch.denials import deny

TI = "ti"
MESSAGES = frozenset({"SetXCom"})  # a push is this request to the supervisor
READS = frozenset({"do_xcom_push"})  # whether to push at all


class PushingTi:
    """A task instance; each use of it that is no push is noted."""

    def __init__(self, ti: Any, note: Callable[[str], object]) -> None:
        self._ti = ti
        self._note = note

    def xcom_push(self, *arguments: Any, **named: Any) -> Any:
        """Push an XCom."""
        return self._ti.xcom_push(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        self._note(f"asks for ti.{name}, which only its task has")
        return getattr(self._ti, name)


class SilentTi:
    """A task instance in the pool: it pushes nothing, and has nothing else.

    :param denied: notes the reason of a denial.
    """

    def __init__(self, denied: list[str]) -> None:
        self._denied = denied

    def xcom_push(self, *_: Any, **__: Any) -> None:
        """Push nothing."""

    def __getattr__(self, name: str) -> Any:
        raise deny(f"its poke asks for ti.{name}, which only its task has", self._denied)
