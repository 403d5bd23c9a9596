"""Labels whose values users choose (classes, backends): a worker tells those of most pokes, and the rest as ``other``.

A value that has been told by its name is always told by its name, and the others never change into names once the names
are given out: so no counter ever falls.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

BOUNDED = ("op_classpath", "backend")
OTHER = "other"
MOST = 50  # values of one label


class Names:
    """The values of one label that are told by their names, the first ones that come. Not safe to share."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._names: set[str] = set()

    def of(self, value: str) -> str:
        """Return a value, or `OTHER` if there are too many others."""
        if value in self._names or value == OTHER:
            return value
        if len(self._names) >= self._most:
            return OTHER
        self._names.add(value)
        return value

    def take(self, counted: Counter[str]) -> None:
        """Take up values in the order of what they count, for as long as there is room."""
        for value, _ in counted.most_common():
            self.of(value)


class BoundedLabels:
    """Bounds the labels of the metrics of a worker's children, of which each has names of its own."""

    def __init__(self, most: int = MOST) -> None:
        self._names = {label: Names(most) for label in BOUNDED}

    def bound(self, metrics: Iterable[Any]) -> Iterator[Any]:
        """Yield Prometheus's metrics; counters of values without a name are added up as `OTHER`."""
        for metric in metrics:
            if metric.type == "counter":
                for label, names in self._names.items():
                    if any(label in sample.labels for sample in metric.samples):
                        self._bound(metric, label, names)
            yield metric

    @staticmethod
    def _bound(metric: Any, label: str, names: Names) -> None:
        counted: Counter[str] = Counter()
        for sample in metric.samples:
            if sample.labels[label] != OTHER:
                counted[sample.labels[label]] += sample.value
        names.take(counted)
        added: dict[tuple[str, tuple[tuple[str, str], ...]], Any] = {}
        for sample in metric.samples:
            labels = sample.labels | {label: names.of(sample.labels[label])}
            key = sample.name, tuple(sorted(labels.items()))
            before = added[key].value if key in added else 0.0
            added[key] = sample._replace(labels=labels, value=before + sample.value)
        metric.samples = list(added.values())
