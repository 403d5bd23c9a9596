"""Spans on disk, in the order of their conditions, so that a survey of millions of tries takes little memory."""

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from types import TracebackType

from sensorpool.admin.savings.values import Span

_BATCH = 5_000
_CACHE_KB = 16_384


class SpanFile:
    """A temporary file, which SQLite deletes at its end, even if this process is killed."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None)
        self._file.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        self._file.execute("PRAGMA synchronous = OFF")
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute(
            "CREATE TABLE span (condition BLOB, start REAL, seconds REAL, pokes REAL, dag_id TEXT, op_classpath TEXT)"
        )
        self._batch: list[tuple[bytes, float, float, float, str, str]] = []

    def add(self, condition: bytes, span: Span) -> None:
        """Add a span of a condition."""
        self._batch.append((condition, span.start, span.seconds, span.pokes, *span.owner))
        if len(self._batch) >= _BATCH:
            self._write()

    def by_condition(self) -> Iterator[Iterable[Span]]:
        """Yield the spans of each condition in the order of their starts. Each group is read before the next one."""
        self._write()
        rows = self._file.execute("SELECT * FROM span ORDER BY condition, start")
        for _, group in groupby(rows, key=itemgetter(0)):
            yield (Span((dag_id, path), start, seconds, pokes) for _, start, seconds, pokes, dag_id, path in group)

    def __enter__(self) -> "SpanFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def _write(self) -> None:
        if self._batch:
            self._file.execute("BEGIN")
            self._file.executemany("INSERT INTO span VALUES (?, ?, ?, ?, ?, ?)", self._batch)
            self._file.execute("COMMIT")
            self._batch.clear()
