"""A registered instance in the hands of its waiter: it knows its pool, and can be asked how its wait ends."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sensorpool.model import values
from sensorpool.model.states import State
from sensorpool.model.values import Result

if TYPE_CHECKING:
    from sensorpool.client.pool import Pool


class Instance(values.Instance):
    """A registered sensor instance.

    ``id`` names it everywhere; ``key`` is the key of its waiter; ``state`` is its state when it was registered or
    looked up (`get`), and `result` looks anew; ``created`` is false where the same key and try was registered before;
    ``opened`` is true where nothing else waited for the same condition.

    It can be pickled, without its pool: then it asks the pool of the environment.
    """

    _pool: "Pool | None" = None
    _result: Result | None = None

    @classmethod
    def of(cls, pool: "Pool", registered: values.Instance) -> "Instance":
        """Return an instance of a pool."""
        made = cls._make(registered)
        made._pool = pool
        return made

    def wait(self, timeout: float | timedelta | None = None) -> State:
        """Wait until it is settled, or ``timeout`` seconds have passed; return its state.

        :raises Unknown: when it was pruned, or another has its id since a restore of the database.
        :raises Unreachable: when the database does not answer (`Pool.wait`).
        """
        return self._asked.wait(self, timeout)[self.id]

    def cancel(self, reason: str = "cancelled") -> State:
        """Cancel it; return its state (another one, if it had settled before).

        :raises Unknown: as `wait` does.
        :raises Unreachable: when the database does not answer.
        """
        return self._asked.cancel(self, reason)

    @property
    def result(self) -> Result | None:
        """How its wait ended, as the database has it now; None while it waits. The end is looked up once.

        :raises Unknown: as `wait` does.
        :raises Unreachable: when the database does not answer.
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
    def _asked(self) -> "Pool":
        if self._pool is None:
            from sensorpool.client.default import default_pool

            return default_pool()
        return self._pool

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._make, (tuple(self),)
