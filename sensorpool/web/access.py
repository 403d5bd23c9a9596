"""What the application that serves the pages says: who may see and do what, and what it knows beside the pool."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from sensorpool.admin.conditions import Seen


@dataclass(frozen=True, slots=True)
class Reader:
    """Who asks for a page.

    :param name: as the record of actions has it.
    :param seen: the DAGs whose waiters may be named to this reader; None: all. Other waiters are counted only.
    :param changed: the DAGs whose waiters this reader may change; None: all.
    :param operates: whether this reader may do what concerns the whole pool, as letting out of quarantine.
    :param watches: whether this reader may see how the pool as a whole fares.
    :param oversees: whether this reader may see what names conditions and waiters of any DAG: what is in quarantine,
        and what operators did.
    """

    name: str
    seen: Seen = None
    changed: Seen = ()
    operates: bool = False
    watches: bool = False
    oversees: bool = False

    def sees(self, dag_id: str) -> bool:
        """Whether a waiter of this DAG may be named."""
        return self.seen is None or dag_id in self.seen

    def changes(self, dag_id: str) -> bool:
        """Whether a waiter of this DAG may be cancelled, handed back, or poked for at once."""
        return self.changed is None or dag_id in self.changed


class Denied(Exception):
    """A request is refused.

    :param status: 401 if a login mends it, else 403.
    :param challenge: what a browser asks its user for, as `WWW-Authenticate` has it.
    """

    def __init__(self, why: str, status: int = 403, challenge: str | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.challenge = challenge


class Access(Protocol):
    """Says who a request comes from."""

    @property
    def reader(self) -> Callable[..., Reader]:
        """A dependency of FastAPI that returns who asks. It raises `Denied` for who may see nothing."""


class Surroundings:
    """Nothing is around the pages; an application that serves them in a place of its own overrides this."""

    def sentences(self, shown: dict[str, Any], reader: Reader) -> dict[str, str]:  # noqa: ARG002
        """Return further sentences about an instance, by what they are about. It raises nothing.

        :param shown: as `admin.instances.show` returns it.
        :param reader: what this reader may not see is not told.
        """
        return {}

    def figures(self) -> dict[str, str]:
        """Return further figures of the overview, by their labels. It raises nothing."""
        return {}
