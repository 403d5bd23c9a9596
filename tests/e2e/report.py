"""One line for each row of the fault table: how many runs, what came of them, and how soon after the fault had gone."""

import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

import pytest

_NAME = "fault row"


@dataclass(slots=True)
class Row:
    """What came of the runs of one row."""

    runs: int = 0
    lost: int = 0  # tasks without a success
    doubled: int = 0  # tasks with more than one success, XCom or run of their callback
    wrongly_failed: int = 0
    recovery: list[float] = field(default_factory=list)  # from healed to the success of each task, in intervals

    def merge(self, other: "Row") -> None:
        """Add what came of other runs."""
        self.runs += other.runs
        self.lost += other.lost
        self.doubled += other.doubled
        self.wrongly_failed += other.wrongly_failed
        self.recovery += other.recovery


_of_this_test: dict[str, Row] = {}


def row(number: str) -> Row:
    """Return this test's record of a row."""
    return _of_this_test.setdefault(number, Row())


def begin_test() -> None:
    """Forget the records of the test before."""
    _of_this_test.clear()


def hand_in(item: pytest.Item) -> None:
    """Hand the test's records in with its report, which also comes from other processes."""
    item.user_properties.extend((_NAME, [number, asdict(each)]) for number, each in _of_this_test.items())


def lines(reports: Iterable[pytest.TestReport]) -> list[str]:
    """Return the lines, in the order of the table."""
    rows: dict[str, Row] = {}
    for report in reports:
        for name, value in report.user_properties if getattr(report, "when", "") == "teardown" else ():
            if name == _NAME:
                number, each = value  # type: ignore[misc]
                rows.setdefault(number, Row()).merge(Row(**each))
    return [
        f"fault row {number}: runs={row.runs}, lost={row.lost}, doubled={row.doubled}, "
        f"wrongly failed={row.wrongly_failed}, recovery p50={statistics.median(row.recovery):.1f} "
        f"max={max(row.recovery):.1f} intervals"
        for number, row in sorted(rows.items(), key=lambda item: (not item[0].isdecimal(), item[0].zfill(3)))
        if row.recovery
    ]
