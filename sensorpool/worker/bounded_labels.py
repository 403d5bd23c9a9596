"""Labels whose values users choose (classes, backends): the first ones are told by their names, the rest as ``other``.

All processes of a worker agree on the names: they keep them in a file. A name that is given out stays, so no counter
ever falls.
"""

import fcntl
from pathlib import Path

OTHER = "other"
MOST = 50  # values of one label


class Names:
    """The values of one label that are told by their names. Safe to share between threads.

    :param file: keeps the names, one a line; None: a process keeps its own.
    """

    def __init__(self, file: Path | None = None, most: int = MOST) -> None:
        self._file = file
        self._most = most
        self._names: set[str] = set()

    def of(self, value: str) -> str:
        """Return a value, or `OTHER` if there are too many others."""
        if value not in self._names and value != OTHER and len(self._names) < self._most:
            self._take(value)
        return value if value in self._names else OTHER

    def _take(self, value: str) -> None:
        """Give a value its name, if there is room among those of all processes; a full disk has none."""
        if self._file is None:
            self._names.add(value)  # two threads at once may go beyond the bound by one
            return
        try:
            with self._file.open("a+", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                names = set(file.read().splitlines())
                if value not in names and len(names) < self._most:
                    file.write(f"{value}\n")
                    names.add(value)
        except OSError:
            return
        self._names = names
