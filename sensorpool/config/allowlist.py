"""The allowlist of a process: the exact set of class paths that the entries of ``sensors_enabled`` stand for.

A process of the pool resolves its patterns whole, before it imports anything (`Allowlist.resolved`). A process that
only registers asks for one class at a time, and reads no more sources than that takes. Both give the same answers.
"""

import os
import threading
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from sensorpool.config.catalogs import Kind, catalog_of
from sensorpool.config.sources.packages import Found, Packages
from sensorpool.model.patterns import covers, is_pattern, package_of

_FEW = 3


class Allowlist:
    """The class paths that entries stand for, in this process. Safe to share between threads.

    :param entries: canonical class paths and patterns.
    """

    def __init__(self, entries: tuple[str, ...]) -> None:
        self.patterns = tuple(dict.fromkeys(entry for entry in entries if is_pattern(entry)))
        self.exact = frozenset(entry for entry in entries if not is_pattern(entry))
        self._allowed = set(self.exact)  # and what patterns were found to stand for
        self._found: dict[str, Found] = {}
        self._lock = threading.RLock()
        self._packages: Packages | None = None

    def __contains__(self, op_classpath: object) -> bool:
        """Whether a canonical class path may be poked."""
        if op_classpath in self._allowed:
            return True
        if not isinstance(op_classpath, str) or not any(self._stands_for(each, op_classpath) for each in self.patterns):
            return False
        self._allowed.add(op_classpath)
        return True

    def resolved(self) -> frozenset[str]:
        """Return all class paths that may be poked. The sources below the patterns are read once."""
        found = self.exact.union(*(self.found(pattern).classes for pattern in self.patterns))
        with self._lock:
            self._packages = None  # it is not needed any more
        return found

    def known(self) -> frozenset[str]:
        """Return the class paths that may be poked, as far as they are known without reading sources."""
        cheap = [each for each in self.patterns if each in self._found or catalog_of(each) is not None]
        return self.exact.union(*(self.found(pattern).classes for pattern in cheap))

    def found(self, pattern: str) -> Found:
        """Return what a pattern stands for here."""
        with self._lock:
            if pattern not in self._found:
                catalog = catalog_of(pattern)
                self._found[pattern] = (
                    self._read().below(package_of(pattern))
                    if catalog is None
                    else Found({path for path in catalog.classes if covers(pattern, path)})
                )
            return self._found[pattern]

    def why_not(self, op_classpath: str) -> str:
        """Return why the patterns that cover a class path do not stand for it; empty if none covers it."""
        return "; ".join(
            f"{pattern} does not stand for it: {self._why_not(pattern, op_classpath)}"
            for pattern in self.patterns
            if covers(pattern, op_classpath)
        )

    def installed(self, pattern: str) -> dict[str, tuple[str, str, list[str]]]:
        """Return what a pattern of a catalog stands for and is installed here.

        :returns: by package: the version installed here, the version that its classes were proved with, and those.
        """
        catalog = catalog_of(pattern)
        versions = {} if catalog is None else catalog.versions
        classes, found = sorted(self.found(pattern).classes), {}
        for package, proved in versions.items():
            own = [path for path in classes if path.startswith(f"{package}.")]
            if own:
                try:
                    found[package] = version(proved.distribution), proved.version, own
                except PackageNotFoundError:
                    continue
        return found

    def doubts(self) -> Iterator[str]:
        """Yield a line for each pattern that stands for nothing here, and for sources that cannot be read."""
        for pattern in self.patterns:
            found, catalog = self.found(pattern), catalog_of(pattern)
            if not found.is_here:
                package = package_of(pattern)
                yield f"{pattern} stands for no class here: there is no {package}; install it, or mend the name"
            elif not found.classes:
                why = "no public class below it is a sensor"
                if catalog is not None:
                    why = f"{catalog.page} lists none below it as poolable"
                yield f"{pattern} stands for no class: {why}; name its classes exactly, or mend the pattern"
            elif catalog is not None and catalog.versions and not self.installed(pattern):
                yield f"{pattern} stands for classes of which none is installed here"
            if found.unread:
                yield f"{pattern} leaves out what cannot be read: {_few(found.unread)}"

    def _stands_for(self, pattern: str, op_classpath: str) -> bool:
        if not covers(pattern, op_classpath):
            return False
        if (catalog := catalog_of(pattern)) is not None:
            return op_classpath in catalog.classes
        with self._lock:
            if pattern in self._found:
                return op_classpath in self._found[pattern].classes
            return self._read().verdict(package_of(pattern), op_classpath).kind is Kind.SENSOR

    def _why_not(self, pattern: str, op_classpath: str) -> str:
        if (catalog := catalog_of(pattern)) is not None:
            return f"{catalog.page} does not list it as poolable, so it needs its exact name"
        with self._lock:
            if (found := self._found.get(pattern)) is not None:
                return found.left_out.get(
                    op_classpath, "it was not there when this process looked; restart it if it is new"
                )
            verdict = self._read().verdict(package_of(pattern), op_classpath)
        return verdict.why or "its source defines no poke, and no base of it is a sensor"

    def _read(self) -> Packages:
        if self._packages is None:
            self._packages = Packages()
        return self._packages


_made: dict[tuple[int, tuple[str, ...]], Allowlist] = {}


def of(entries: tuple[str, ...]) -> Allowlist:
    """Return this process's allowlist of these entries. A forked process makes its own: files may have changed."""
    key = os.getpid(), entries
    if key not in _made:
        for other in [each for each in _made if each[0] != key[0]]:
            _made.pop(other, None)
        _made[key] = Allowlist(entries)
    return _made[key]


def _few(unread: dict[str, str]) -> str:
    shown = [f"{name} ({why})" for name, why in list(unread.items())[:_FEW]]
    more = len(unread) - len(shown)
    return ", ".join([*shown, *([f"and {more} more"] if more else [])])
