"""The ledger: costs by DAG and class, with the pokes that are duplicates once all waits for a condition are known."""

from collections import defaultdict
from collections.abc import Callable, Mapping

from sensorpool.admin.savings.estimate import after_duplicates, costs_of, span_of
from sensorpool.admin.savings.overlap import Owner, duplicates_of
from sensorpool.admin.savings.span_file import SpanFile
from sensorpool.admin.savings.values import Costs, SensorTry, Taken

Entries = Mapping[Owner, Costs]


class Ledger:
    """Adds up tries.

    :param taken_of: says of a class path whether the pool takes the class.
    :param start_seconds: what a start of a task holds its slot before its code runs.
    """

    def __init__(self, spans: SpanFile, taken_of: Callable[[str], Taken], start_seconds: float) -> None:
        self._spans = spans
        self._taken_of = taken_of
        self._start_seconds = start_seconds
        self._entries: defaultdict[Owner, Costs] = defaultdict(Costs)

    def add(self, one: SensorTry) -> None:
        """Add a try. One whose condition is not known has no duplicates."""
        taken = self._taken_of(one.op_classpath)
        self._entries[one.dag_id, one.op_classpath].add(costs_of(one, taken, self._start_seconds))
        if one.condition is not None and (span := span_of(one)) is not None:
            self._spans.add(one.condition, span)

    def entries(self) -> Entries:
        """Return the costs by DAG and class, duplicates and all; once."""
        duplicates: defaultdict[Owner, float] = defaultdict(float)
        for spans in self._spans.by_condition():
            for owner, count in duplicates_of(spans).items():
                duplicates[owner] += count
        return {
            owner: after_duplicates(costs, duplicates[owner], self._taken_of(owner[1]))
            for owner, costs in self._entries.items()
        }


def summed(entries: Entries, name_of: Callable[[Owner], str]) -> dict[str, Costs]:
    """Return the costs by a name, those with the most slot-hours first."""
    found: defaultdict[str, Costs] = defaultdict(Costs)
    for owner, costs in entries.items():
        found[name_of(owner)].add(costs)
    return dict(sorted(found.items(), key=lambda each: (-each[1].slot_seconds, each[0])))


def total(entries: Entries) -> Costs:
    """Return the costs of all."""
    found = Costs()
    for costs in entries.values():
        found.add(costs)
    return found
