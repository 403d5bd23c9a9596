"""A registered instance in the hands of its waiter: it can be asked how its wait ends."""

from datetime import timedelta
from typing import Any, Protocol

from sensorpool.errors import Refused
from sensorpool.model.states import State
from sensorpool.model.values import Registered, Result


class PoolOfInstance(Protocol):
    """What an instance asks its pool."""

    def wait(self, instance_ids: Registered, timeout: float | timedelta | None) -> dict[int, State]:
        """Wait, and return the state by the id."""

    def cancel(self, instance_id: Registered, reason: str) -> State:
        """Cancel."""

    def result(self, instance: Registered) -> Result | None:
        """Return how the wait ended."""


class Instance(Registered):
    """A registered sensor instance.

    ``id`` names it everywhere; ``key`` is the key of its waiter; ``state`` is its state when it was registered or
    looked up (`get`), and `result` looks anew; ``created`` is false where the same key and try was registered before;
    ``opened`` is true where nothing else waited for the same condition.

    It can be pickled, without its pool: `Pool.wait`, `Pool.cancel` and `Pool.result` take it.
    """

    _pool: PoolOfInstance | None = None
    _result: Result | None = None

    @classmethod
    def of(cls, pool: PoolOfInstance, registered: Registered) -> "Instance":
        """Return an instance of a pool."""
        made = cls._make(registered)
        made._pool = pool
        return made

    def wait(self, timeout: float | timedelta | None = None) -> State:
        """Wait until it is settled, or ``timeout`` seconds have passed; return its state.

        :raises Unknown: when it was pruned, or another has its id since a restore of the database.
        :raises Unreachable: when the database does not answer (`Pool.wait`).
        :raises Refused: when it was pickled, and so has no pool.
        """
        return self._asked.wait(self, timeout)[self.id]

    def cancel(self, reason: str = "cancelled") -> State:
        """Cancel it; return its state (another one, if it had settled before). It raises what `wait` raises."""
        return self._asked.cancel(self, reason)

    @property
    def result(self) -> Result | None:
        """How its wait ended, as the database has it now; None while it waits. The end is looked up once.

        It raises what `wait` raises.
        """
        if self._result is None:
            self._result = self._asked.result(self)
        return self._result

    @property
    def xcom_value(self) -> Any:
        """What its last poke returned as a value; None while it waits, or without one. Looks as `result` does."""
        return None if self.result is None else self.result.xcom_value

    @property
    def reason(self) -> str | None:
        """Why it did not land; None while it waits, or when it landed. Looks as `result` does."""
        return None if self.result is None else self.result.reason

    @property
    def _asked(self) -> PoolOfInstance:
        if self._pool is None:
            raise Refused(f"instance {self.id} was pickled without its pool: look it up with sensorpool.get({self.id})")
        return self._pool

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._make, (tuple(self),)
