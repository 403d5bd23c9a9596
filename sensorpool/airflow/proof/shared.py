"""What sensors share: the data of their classes, and that of modules and functions which these name (`reach`).

Natively each task has a process of its own, or each poke, which imports that anew; the pool's imported it once, for all
sensors. So a class that changes it by its constructor or its poke runs natively; what it says when a sensor is
registered is told with it, and the pool compares. Nothing is asked of sensors of the providers that were read, and of
classes that say themselves by ``poke_context_fields`` what their answer depends on.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import CellType
from typing import Any

from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof import known_sensors, reach
from sensorpool.airflow.proof.spelt import Speller

_MOST_TOLD = 100
_SEPARATOR = ":"  # between a module and what it has: no name of an attribute has one
_NOT_IN_NAMES = frozenset(" =")
_MISSING = object()
_MEND = "keep it in self, or name in poke_context_fields what its answer depends on"


class Picture:
    """What a class shares, spelt: the same as long as nothing of it changes.

    :param caches: whether a call that a cached function has not had before counts.
    """

    def __init__(self, cls: type, *, caches: bool = False, keeps: bool = False) -> None:
        self._cls = cls
        self._caches = caches
        reached = None if known_sensors.vouches_for_itself(cls) else reach.of(cls)
        speller = _speller(cls, caches=caches, keeps=keeps)
        self._put_back = speller.put_back
        self._bound = list(_bound(reached)) if keeps and reached else []
        self._seen = reached, _picture(reached, speller)  # together: other threads look as well

    def changed(self) -> str | None:
        """Name what is another one now, and how a company mends that."""
        reached, before = self._seen
        after = _picture(reached, _speller(self._cls, caches=self._caches))
        if before == after:
            return None
        name = min(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        return f"{_shown(name)}, which all sensors of a process share ({_MEND})"

    def grow(self) -> None:
        """Take in what the class reaches since more has been imported."""
        reached, before = self._seen
        if reached is not None and (more := reach.of(self._cls)) is not reached:
            self._seen = more, _picture(more, _speller(self._cls, caches=self._caches)) | before

    def put_back(self) -> None:
        """Have everything hold what it held then."""
        for place, was in self._bound:
            _bind(place, was)
        self._put_back()


@contextmanager
def left_alone(cls: type) -> Iterator[None]:
    """Insist that what is done to prove a class changes nothing of what it shares; put it back, save for iterators.

    :raises NotPoolable: when it did.
    """
    before, name = Picture(cls, keeps=True), None
    try:
        yield
    finally:
        if (name := before.changed()) is not None:
            before.put_back()
    if name is not None:
        raise NotPoolable(f"its constructor changes {name}", "stateful")


def told(cls: type, but: Collection[str]) -> dict[str, str]:
    """Return a digest of each thing that a class shares, under its name: the same in all that import the same.

    :param but: attributes of the class itself that are told already.
    """
    if known_sensors.vouches_for_itself(cls):
        return {}
    already = {f"{base.__module__}{_SEPARATOR}{base.__qualname__}.{name}" for base in cls.__mro__ for name in but}
    found = {_name(module, path): (module, path, value) for module, path, value in reach.of(cls).data()}
    speller, digests = _speller(cls, abroad=True), dict[str, str]()
    for name in sorted(found.keys() - already):
        module, path, value = found[name]
        if _is_plain(name) and _there(module, path) is value and ".__init__." not in path:  # that is in its sensor
            what = speller.of(path.rpartition(".")[2], value)
            if what is not None or value is None:
                digests[name] = _digest(what)
            if len(digests) == _MOST_TOLD:
                break
    return digests


def differing(cls: type, told: Mapping[str, str]) -> str | None:
    """Name what is another one here than was told, of what can be found here."""
    if not told:
        return None
    speller = _speller(cls, abroad=True)
    for name, digest in told.items():
        module, _, path = name.partition(_SEPARATOR)
        value = _there(module, path)
        if value is not _MISSING and _digest(speller.of(path.rpartition(".")[2], value)) != digest:
            return _shown(name)
    return None


def is_told(name: str) -> bool:
    """Whether a name is one of `told`."""
    return _SEPARATOR in name


def _speller(cls: type, **how: bool) -> Speller:
    company = str(cls.__module__).partition(".")[0]
    return Speller(lambda module: reach.is_of(company, module), **how)


def _picture(reached: reach.Reached | None, speller: Speller) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for module, path, value in reached.data() if reached is not None else ():
        what = speller.of(path.rpartition(".")[2], value)
        if what is not None:
            found[_name(module, path)] = what
    return found


def _digest(what: Any) -> str:
    return hashlib.sha256(repr(what).encode(errors="surrogatepass")).hexdigest()[:12]


def _there(module: str, path: str) -> Any:
    """Return what stands under a path, as it stands; `_MISSING`, where it leads nowhere: it will be imported anew."""
    try:
        return reach.at(module, path)
    except Exception:
        return _MISSING


def _name(module: str, path: str) -> str:
    return f"{module}{_SEPARATOR}{path}"


def _is_plain(name: str) -> bool:
    return name.isprintable() and _NOT_IN_NAMES.isdisjoint(name)


def _shown(name: str) -> str:
    return name.replace(_SEPARATOR, ".")


def _bound(reached: reach.Reached) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield what names are bound in, and how they are bound now."""
    for cls in reached.classes:
        yield cls, reach.data_of(cls)
    for function in reached.functions:
        yield function, dict(vars(function))
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # it is empty yet
                yield cell, {"": cell.cell_contents}
    for name, module in reached.names:
        yield module, {name: module.get(name, _MISSING)}


def _bind(place: Any, was: dict[str, Any]) -> None:
    if isinstance(place, CellType):
        place.cell_contents = was[""]
        return
    is_class = isinstance(place, type)
    now = reach.data_of(place) if is_class else place if isinstance(place, dict) else vars(place)
    for name in list(was) if isinstance(place, dict) else [*(now.keys() - was.keys()), *was]:
        value = was.get(name, _MISSING)
        if now.get(name, _MISSING) is value:
            continue
        if is_class:
            type.__delattr__(place, name) if value is _MISSING else type.__setattr__(place, name, value)
        elif value is _MISSING:
            del now[name]
        else:
            now[name] = value
