"""A finding: one line of the doctor's report. Checks that other packages add (entry points) give findings too."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report.

    :param classes: the class paths that a pattern stands for, where the line is about one.
    """

    subject: str
    level: Level
    said: str
    classes: tuple[str, ...] = ()
