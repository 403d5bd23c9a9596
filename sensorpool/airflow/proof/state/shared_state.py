"""State that the sensors of a process share: data of their classes, and of what these reference (`references`).

Natively each task, or each poke, has a process of its own, which imports that state anew. A process of the pool imports
it once, for all sensors. So a class whose constructor or poke changes it runs natively. Digests of it are registered
with a sensor, and the pool compares them. A stateless class (`known_sensors`) is taken to have none.
"""

import hashlib
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import CellType
from typing import Any

from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.state import places, references, value_digest
from sensorpool.airflow.proof.state.captured_values import Capturer
from sensorpool.airflow.proof.state.references import References

_MOST_TOLD = 100
_SEPARATOR = ":"  # between a module and what it has: no name of an attribute has one
_NOT_IN_NAMES = frozenset(" =")
_MISSING = object()
_ADVICE = "keep it in self, or name in poke_context_fields what its answer depends on"
_LARGE = 2**20  # bytes of an object of a library that is not read


class SharedState:
    """The shared state of a class at one moment.

    :param caches: whether a call that a cached function has not had before counts as a change.
    :param brief: for looks during a poke (`Capturer`).
    :param restorable: keep what is needed to restore the state.
    :param clients: for `made_client`.
    """

    def __init__(
        self,
        cls: type,
        *,
        caches: bool = False,
        brief: bool = False,
        restorable: bool = False,
        clients: bool = False,
    ) -> None:
        self._cls = cls
        self._flags = {"caches": caches, "brief": brief}
        referenced = None if known_sensors.is_stateless(cls) else references.references_of(cls)
        capturer = _capturer_for(cls, **self._flags, restorable=restorable)
        self._restore = capturer.restore
        self._bindings = list(_bindings(referenced)) if restorable and referenced else []
        self._seen = referenced, _capture(referenced, capturer)  # one value: other threads read it as well
        self._clients = _clients(referenced, _capturer_for(cls)) if clients else {}

    def changed(self) -> str | None:
        """Return what has changed, and how a company mends that; None if nothing has."""
        referenced, before = self._seen
        after = _capture(referenced, _capturer_for(self._cls, **self._flags))
        if before == after:
            return None
        name = min(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        return f"{_shown(name)}, which all sensors of a process share ({_ADVICE})"

    def made_client(self) -> str | None:
        """Return the name of what has or had a client that was made or changed since; None if there is none.

        Digests compare all else, with that of the worker.
        """
        referenced, _ = self._seen
        before, after = self._clients, _clients(referenced, _capturer_for(self._cls))
        return min(
            (_shown(name) for name in before.keys() | after.keys() if before.get(name) != after.get(name)), default=None
        )

    def extend(self) -> None:
        """Add what the class references since more modules have been imported."""
        referenced, before = self._seen
        if referenced is not None and (more := references.references_of(self._cls)) is not referenced:
            self._seen = more, _capture(more, _capturer_for(self._cls, **self._flags)) | before

    def restore(self) -> None:
        """Restore the state of that moment."""
        for owner, values in self._bindings:
            _rebind(owner, values)
        self._restore()


@contextmanager
def kept_unchanged(cls: type) -> Iterator[None]:
    """Check that the block, which proves a class, leaves its shared state unchanged; restore it, except iterators.

    :raises NotPoolable: when the block has changed it.
    """
    before, name = SharedState(cls, restorable=True), None
    try:
        yield
    finally:
        if (name := before.changed()) is not None:
            before.restore()
    if name is not None:
        raise NotPoolable(f"its constructor changes {name}", "stateful")


def digests(cls: type, without: Collection[str]) -> dict[str, str]:
    """Return a digest of each part of a class's shared state: the same in all processes that import the same.

    :param without: constants of the class itself that have a digest elsewhere.
    """
    if known_sensors.is_stateless(cls):
        return {}
    others = {f"{base.__module__}{_SEPARATOR}{base.__qualname__}.{name}" for base in cls.__mro__ for name in without}
    found = {_name(module, path): (module, path, value) for module, path, value in references.references_of(cls).data()}
    capturer, digests = _capturer_for(cls, portable=True), dict[str, str]()
    for name in sorted(found.keys() - others):
        module, path, value = found[name]
        if ".__init__." in path:  # the defaults of a constructor are in its sensor
            continue
        if _is_plain(name) and _value_at(cls, module, path) is value:
            captured = capturer.capture(path.rpartition(".")[2], value)
            if captured is not None or value is None:
                digests[name] = _digest(captured)
            if len(digests) == _MOST_TOLD:
                break
    return digests


def digest_of_nested(cls: type) -> str:
    """Return one digest of the shared state that has no path of its own: of the functions that a sensor was given.

    It has what objects of libraries hold, too: a closure is made for its sensor, as an argument is.
    """
    capturer = _capturer_for(cls, portable=True, of_library=_digest_of_library)
    found = [
        (_name(module, path), repr(capturer.capture(path.rpartition(".")[2], value)))
        for module, path, value in references.references_of(cls).data()
        if _value_at(cls, module, path) is not value
    ]
    return _digest(sorted(found))


def differing(cls: type, registered: Mapping[str, str]) -> str | None:
    """Return the name of a part of the shared state that differs here; None if all parts found here are the same."""
    if not registered:
        return None
    capturer = _capturer_for(cls, portable=True)
    for name, digest in registered.items():
        module, _, path = name.partition(_SEPARATOR)
        value = _value_at(cls, module, path)
        if value is not _MISSING and _digest(capturer.capture(path.rpartition(".")[2], value)) != digest:
            return _shown(name)
    return None


def is_digest_name(name: str) -> bool:
    """Whether a name is one of `digests`."""
    return _SEPARATOR in name


def _digest_of_library(value: Any) -> str:
    if type(value).__module__.partition(".")[0] == "airflow":
        return ""
    try:
        return "" if sys.getsizeof(value) > _LARGE else value_digest.digest(value_digest.canonical_json(value))
    except Exception:  # an odd class
        return ""


def _capturer_for(cls: type, **flags: Any) -> Capturer:
    company = references.company_of(cls)
    return Capturer(lambda module: references.is_of_company(company, module), **flags)


def _capture(referenced: References | None, capturer: Capturer) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for module, path, value in referenced.data() if referenced is not None else ():
        captured = capturer.capture(path.rpartition(".")[2], value)
        if captured is not None:
            found[_name(module, path)] = captured
    return found


def _clients(referenced: References | None, capturer: Capturer) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for module, path, value in referenced.data() if referenced is not None else ():
        capturer.clients = []
        capturer.capture(path.rpartition(".")[2], value)
        if capturer.clients:
            found[_name(module, path)] = capturer.clients
    return found


def _digest(captured: Any) -> str:
    return hashlib.sha256(repr(captured).encode(errors="surrogatepass")).hexdigest()[:12]


def _value_at(cls: type, module: str, path: str) -> Any:
    """Return the value at a path; `_MISSING` if there is none, for a module that has yet to be imported to its end."""
    try:
        if references.is_half_imported(vars(sys.modules[module])):
            return _MISSING
        return references.value_at(cls, module, path)
    except Exception:
        return _MISSING


def _name(module: str, path: str) -> str:
    return f"{module}{_SEPARATOR}{path}"


def _is_plain(name: str) -> bool:
    return name.isprintable() and _NOT_IN_NAMES.isdisjoint(name)


def _shown(name: str) -> str:
    return places.shown(name.replace(_SEPARATOR, "."))


def _bindings(referenced: References) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield the owners of the names, each with its values now."""
    for cls in referenced.classes:
        yield cls, references.class_data(cls)
    for function in referenced.functions:
        yield function, dict(vars(function))
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # the cell is still empty
                yield cell, {"": cell.cell_contents}
    for name, module in referenced.names:
        yield module, {name: module.get(name, _MISSING)}


def _rebind(owner: Any, values: dict[str, Any]) -> None:
    if isinstance(owner, CellType):
        owner.cell_contents = values[""]
        return
    is_class = isinstance(owner, type)
    now = references.class_data(owner) if is_class else owner if isinstance(owner, dict) else vars(owner)
    for name in list(values) if isinstance(owner, dict) else [*(now.keys() - values.keys()), *values]:
        value = values.get(name, _MISSING)
        if now.get(name, _MISSING) is value:
            continue
        if is_class:
            type.__delattr__(owner, name) if value is _MISSING else type.__setattr__(owner, name, value)
        elif value is _MISSING:
            del now[name]
        else:
            now[name] = value
