"""A finding: one line of what `doctor`, `health` and `status` say. Other packages may add checks."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a report.

    :param said: a sentence, with its mend where something is not in order.
    :param classes: the class paths that a pattern stands for, where the line is about one.
    :param stops: whether nothing is poked as long as this is so.
    """

    subject: str
    level: Level
    said: str
    classes: tuple[str, ...] = ()
    stops: bool = False
