"""Finds the files of modules as an import would, and executes nothing of the package.

`importlib.util.find_spec` imports the parents of a module. Here each parent is located in its turn, and only asked for
its folders: regular packages, namespace packages, zip files, and whatever a finder of an editable install names.
"""

import importlib
import os
import pkgutil
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from importlib.util import decode_source
from typing import Any

_KEPT = 50_000  # modules
_LARGEST = 4 * 1024 * 1024  # bytes of one source
_EXTENDS = (b"extend_path", b"declare_namespace")  # an older package that has folders in several places


class Unreadable(Exception):
    """The source of a module cannot be read. The message says why."""


@dataclass(frozen=True, slots=True)
class ModuleFile:
    """A module, as it was found.

    :param origin: its file; None: a namespace package.
    :param locations: the folders of its submodules; empty: it is no package.
    :param loader: gives the source where ``origin`` is no file (in a zip file).
    :param above: the real paths of its locations and those of its parents: a folder that holds itself is left out.
    """

    name: str
    origin: str | None
    locations: tuple[str, ...]
    loader: Any
    above: frozenset[str]

    @property
    def stamp(self) -> tuple[int, int]:
        """The time of change (nanoseconds) and size (bytes) of its file: another stamp is another source.

        :raises Unreadable: when there is no such file.
        """
        for path in (self.origin, getattr(self.loader, "archive", None)):
            try:
                found = os.stat(path) if path else None
            except (OSError, ValueError):
                continue
            if found is not None and stat.S_ISREG(found.st_mode):
                return found.st_mtime_ns, found.st_size
        raise Unreadable("it has no file that could be read")

    def source(self) -> str:
        """Return the source.

        :raises Unreadable: when it has none, or none that can be read.
        """
        return _decoded(self._bytes())

    def _bytes(self) -> bytes:
        size = self.stamp[1]
        try:
            if self.origin is not None and os.path.isfile(self.origin):
                if not self.origin.endswith((".py", ".pyw")):
                    raise Unreadable("it has no Python source")
                if size > _LARGEST:
                    raise Unreadable(f"its source has {size:,} bytes; {_LARGEST:,} are read")
                with open(self.origin, "rb") as file:
                    return file.read()
            text = self.loader.get_source(self.name) if hasattr(self.loader, "get_source") else None
        except Unreadable:
            raise
        except Exception as error:  # a file that may not be read, a broken archive
            raise Unreadable(f"{type(error).__name__}: {error}") from None
        if text is None:
            raise Unreadable("it has no Python source")
        return str(text).encode()


def _decoded(source: bytes) -> str:
    try:
        return decode_source(source)
    except (SyntaxError, ValueError, LookupError) as error:  # an unknown or a wrong encoding
        raise Unreadable(f"{type(error).__name__}: {error}") from None


class ModuleFiles:
    """Finds modules, each once."""

    def __init__(self) -> None:
        importlib.invalidate_caches()  # files may be newer than the cached listings of their folders
        self._found: dict[str, ModuleFile | None] = {}

    def locate(self, name: str) -> ModuleFile | None:
        """Return a module, or None if there is none by that name."""
        if name in self._found:
            return self._found[name]
        found = self._locate(name)
        if len(self._found) < _KEPT:  # callers may ask for any number of names
            self._found[name] = found
        return found

    def children(self, module: ModuleFile) -> Iterator[ModuleFile]:
        """Yield the modules right below a package.

        :raises Unreadable: when a folder may not be listed.
        """
        names: set[str] = set()
        for location in module.locations:
            names.update(info.name for info in pkgutil.iter_modules([location]))
            try:
                with os.scandir(location) as entries:
                    names.update(entry.name for entry in entries if entry.is_dir())
            except (FileNotFoundError, NotADirectoryError):
                continue  # in a zip file
            except OSError as error:
                raise Unreadable(f"{location}: {error.strerror}") from None
        for name in sorted(names):
            if name.isidentifier() and (found := self.locate(f"{module.name}.{name}")) is not None:
                yield found

    def _locate(self, name: str) -> ModuleFile | None:
        parent_name, _, last = name.rpartition(".")
        parent = self.locate(parent_name) if parent_name else None
        if parent_name and parent is None:
            return None
        paths = sys.path if parent is None else parent.locations
        above = frozenset() if parent is None else parent.above
        for finder in list(sys.meta_path):
            if finder in (BuiltinImporter, FrozenImporter):
                continue
            found = _by_path(name, paths) if finder is PathFinder else _by_finder(finder, name, parent)
            if found is None:
                continue
            origin, locations, loader = found
            if locations and origin is not None and _extends(origin):
                locations = [*locations, *(os.path.join(path, last) for path in paths if isinstance(path, str))]
            kept = {os.path.realpath(each): each for each in locations if os.path.realpath(each) not in above}
            if origin is None and not kept:
                return None
            return ModuleFile(name, origin, tuple(kept.values()), loader, above.union(kept))
        return None


_Found = tuple[str | None, Sequence[str], Any]
"""The file of a module, the folders of its submodules, and its loader."""


def _by_path(name: str, paths: Sequence[str]) -> _Found | None:
    """Look for a module in folders and zip files, as `PathFinder` does where the parent has been imported."""
    portions: list[str] = []
    for path in paths:
        try:
            finder: Any = pkgutil.get_importer(path or os.getcwd()) if isinstance(path, str) else None
        except OSError:
            continue  # the working directory is gone
        try:
            spec = None if finder is None else finder.find_spec(name)
        except (SyntaxError, ValueError):  # the finder of zip files compiles what it finds
            folder = os.path.join(path, name.rpartition(".")[2])
            is_package = finder.is_package(name)
            return (
                (os.path.join(folder, "__init__.py"), [folder], finder) if is_package else (f"{folder}.py", [], finder)
            )
        except ImportError:
            continue  # a zip file that cannot be read
        if spec is None:
            continue
        if spec.loader is not None:
            return _read(spec)
        portions += spec.submodule_search_locations or ()
    return (None, portions, None) if portions else None


def _by_finder(finder: Any, name: str, parent: ModuleFile | None) -> _Found | None:
    """Ask a further finder: one of an editable install, say. Whatever it raises, it does not know the module."""
    try:
        spec = finder.find_spec(name, None if parent is None else list(parent.locations), None)
        return None if spec is None else _read(spec)
    except Exception:
        return None


def _read(spec: ModuleSpec) -> _Found:
    locations = list(spec.submodule_search_locations or ())
    origin = spec.origin if spec.has_location or spec.loader is not None else None
    return origin, locations, spec.loader


def _extends(origin: str) -> bool:
    try:
        with open(origin, "rb") as file:
            head = file.read(_LARGEST)
    except OSError:
        return False
    return any(word in head for word in _EXTENDS)
