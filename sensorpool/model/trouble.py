"""The trouble of a group: what earlier pokes of it have shown, as far as it decides what is done with the next one.

A group without trouble has no row. `settle.judge` says how a poke changes it.
"""

from typing import NamedTuple

from sensorpool.model.values import Milliseconds

TOGETHER, ALONE = 1, 2  # strikes from which on a group is poked in a child process with others, and alone
LONGEST_CAUSE = 300  # characters


class Trouble(NamedTuple):
    """What is known of a group whose pokes do not go well.

    :param strikes: processes in a row that died with a poke of it in hand.
    :param overruns: pokes in a row that overran their time limit.
    :param failing_since: since when its pokes end in infrastructure failures.
    :param unpokeable_since: since when no process could poke it.
    :param cause: what its last poke said, as the trouble changed.
    """

    strikes: int = 0
    overruns: int = 0
    failing_since: Milliseconds | None = None
    unpokeable_since: Milliseconds | None = None
    cause: str | None = None

    @property
    def is_isolated(self) -> bool:
        """Whether the group is poked in a child process."""
        return self.strikes > 0 or self.overruns > 0

    @property
    def is_alone(self) -> bool:
        """Whether that child is given no other group."""
        return self.strikes >= ALONE

    def __str__(self) -> str:
        """Return why the group is not poked as others are; empty: it is."""
        if self.strikes:
            return f"{self.strikes} of its processes died with its poke in hand"
        return "its poke overran its time limit" if self.overruns else ""


HEALTHY = Trouble()
