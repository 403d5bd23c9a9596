"""One line for each row of the fault table: how many runs, what came of them, and how soon after the fault had gone."""

import statistics
from collections import defaultdict
from dataclasses import dataclass, field


@dataclass(slots=True)
class Row:
    """What came of the runs of one row."""

    runs: int = 0
    lost: int = 0  # tasks without a success
    doubled: int = 0  # tasks with more than one success, XCom or run of their callback
    wrongly_failed: int = 0
    recovery: list[float] = field(default_factory=list)  # from healed to the success of each task, in intervals


ROWS: dict[str, Row] = defaultdict(Row)


def lines() -> list[str]:
    """Return the lines, in the order of the table."""
    return [
        f"fault row {number}: runs={row.runs}, lost={row.lost}, doubled={row.doubled}, "
        f"wrongly failed={row.wrongly_failed}, recovery p50={statistics.median(row.recovery):.1f} "
        f"max={max(row.recovery):.1f} intervals"
        for number, row in sorted(ROWS.items(), key=lambda item: (not item[0].isdecimal(), item[0].zfill(3)))
        if row.recovery
    ]
