"""Whether a class is a sensor, read from its own source and that of its bases. Whatever is in doubt is none."""

import builtins
import sys
from collections.abc import Iterator
from typing import NamedTuple

from sensorpool.config.catalogs import Kind, catalog_of
from sensorpool.config.sources.module_files import ModuleFile, ModuleFiles, Unreadable
from sensorpool.config.sources.module_names import ClassFacts, ModuleFacts, Target, facts_of


class Verdict(NamedTuple):
    """What a class is.

    :param why: why it is `Kind.EXACT`, for people.
    :param is_likely: whether it looks like a sensor: it has a ``poke``, or is derived from a sensor of a catalog.
    """

    kind: Kind
    why: str = ""
    is_likely: bool = False


Names = tuple[str, ...]
_PLAIN = Verdict(Kind.PLAIN)
_DEEPEST = 20  # names, each within the one before it


class ClassKinds:
    """Tells the kinds of classes; each class is looked at once."""

    def __init__(self, files: ModuleFiles) -> None:
        self._files = files
        self._verdicts: dict[tuple[str, str], Verdict] = {}
        self._pending: set[tuple[str, str]] = set()

    def verdict(self, module: ModuleFile, name: str) -> Verdict:
        """Return what a class of a module is.

        :raises Unreadable: when the module cannot be read.
        """
        key = module.name, name
        if (known := self._verdicts.get(key)) is not None:
            return known
        if key in self._pending:
            return Verdict(Kind.EXACT, f"{module.name}.{name} is among its own bases")
        self._pending.add(key)
        try:
            found = [self._of_statement(module, each) for each in facts_of(module).classes.get(name, ())]
        finally:
            self._pending.discard(key)
        made = self._verdicts[key] = _together(found)
        return made

    def _of_statement(self, module: ModuleFile, facts: ClassFacts) -> Verdict:
        found = [self._of_base(module, base) for base in facts.bases]
        if facts.has_poke:
            found.append(Verdict(Kind.SENSOR, is_likely=True))
        return _together(found)

    def _of_base(self, module: ModuleFile, base: str | None) -> Verdict:
        if base is None:
            return Verdict(Kind.EXACT, "a base of it is worked out when it is imported")
        names, facts = tuple(base.split(".")), facts_of(module)
        if hasattr(builtins, base) and base not in facts.classes and base not in facts.targets:
            return _PLAIN
        found = list(self._resolve(module, names, set()))
        there = [each for each in found if each is not None]
        if not there:
            return Verdict(Kind.EXACT, f"its base {base} is not found here")
        return _together(there)

    def _resolve(self, module: ModuleFile, names: Names, seen: set[tuple[str, Names]]) -> Iterator[Verdict | None]:
        """Yield what names in a module, each within the one before it, may be; None: a module of it is not here.

        :param seen: modules and names that have been resolved on the way.
        """
        path = ".".join([module.name, *names])
        if (module.name, names) in seen or len(names) > _DEEPEST:
            return
        seen.add((module.name, names))
        try:
            facts = facts_of(module)
        except Unreadable as error:
            yield Verdict(Kind.EXACT, f"its base is in {module.name}, which cannot be read: {error}")
            return
        name, rest = names[0], names[1:]
        itself = Target(module.name, (name,))  # from . import name
        targets = [target for target in facts.targets.get(name, ()) if target != itself]
        if name in facts.classes:
            yield _unknown(path) if rest else self.verdict(module, name)
        for target in targets:
            yield from [_unknown(path)] if target is None else self._follow(target, rest, seen)
        if name in facts.classes or targets:
            return
        if (child := self._files.locate(f"{module.name}.{name}")) is None:
            yield from self._by_stars(facts, names, seen) or [_unknown(path)]
        elif rest:
            yield from self._resolve(child, rest, seen)
        else:
            yield _unknown(path)

    def _by_stars(self, facts: ModuleFacts, names: Names, seen: set[tuple[str, Names]]) -> list[Verdict | None]:
        """Return what a name may be that a module has from others, all of whose names it imports."""
        found: list[Verdict | None] = []
        for star in facts.stars:
            module = None if catalog_of(star) is not None else self._files.locate(star)
            if module is None:
                continue
            try:
                theirs = facts_of(module)
            except Unreadable as error:
                found.append(Verdict(Kind.EXACT, f"its base may be in {star}, which cannot be read: {error}"))
                continue
            if names[0] in theirs.classes or names[0] in theirs.targets or theirs.stars:
                found += self._resolve(module, names, seen)
        if not found:
            for star in facts.stars:
                if catalog_of(star) is not None:
                    found += self._follow(Target(star), names, seen)
        return found

    def _follow(self, target: Target, rest: Names, seen: set[tuple[str, Names]]) -> Iterator[Verdict | None]:
        """Yield what a target of an import or alias, and further names within it, may be."""
        names = (*target.names, *rest)
        path = ".".join([target.module, *names])
        if (catalog := catalog_of(path)) is not None:
            kind = catalog.kind_of(path)
            why = f"{path} needs its exact name, too" if kind is Kind.EXACT else ""
            yield Verdict(kind, why, "sensor" in path.rpartition(".")[2].lower())
        elif target.module.partition(".")[0] in sys.stdlib_module_names:
            yield _PLAIN
        elif (module := self._files.locate(target.module)) is None:
            yield None
        else:
            yield from self._resolve(module, names, seen) if names else [_unknown(path)]


def _unknown(path: str) -> Verdict:
    return Verdict(Kind.EXACT, f"what {path} is, is not told by a source")


def _together(found: list[Verdict]) -> Verdict:
    """Return the verdict of a class whose bases, or branches, are these: what needs its exact name comes first."""
    is_likely = any(each.is_likely for each in found)
    for kind in (Kind.EXACT, Kind.SENSOR):
        for each in found:
            if each.kind is kind:
                return each._replace(is_likely=is_likely)
    return _PLAIN
