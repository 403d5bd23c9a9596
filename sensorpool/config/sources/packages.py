"""The sensor classes below a package (or in a module), found in its sources: nothing of it is imported."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sensorpool.config.catalogs import Kind
from sensorpool.config.sources.class_kinds import ClassKinds, Verdict
from sensorpool.config.sources.module_files import ModuleFile, ModuleFiles, Unreadable
from sensorpool.config.sources.module_names import facts_of
from sensorpool.errors import ClassRefused
from sensorpool.model.identity import canonical_classpath

MOST_MODULES = 10_000  # below one pattern
_DEEPEST = 50  # packages, each in the one before it


@dataclass
class Found:
    """What a pattern stands for.

    :param left_out: class paths that look like sensors, each with the reason why only its exact name enables it.
    :param unread: modules that cannot be read, each with the reason.
    :param is_here: whether there is such a package or module at all.
    """

    classes: set[str] = field(default_factory=set)
    left_out: dict[str, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    is_here: bool = True


class Packages:
    """Reads packages; modules and classes are looked at once."""

    def __init__(self) -> None:
        self.files = ModuleFiles()
        self._kinds = ClassKinds(self.files)

    def below(self, package: str) -> Found:
        """Return the sensor classes of a package and of all modules below it, or of a module."""
        found = Found()
        top = self.files.locate(package)
        if top is None:
            return Found(is_here=False)
        for count, module in enumerate(self._walk(top, found)):
            if count == MOST_MODULES:
                found.unread[package] = f"it has more than {MOST_MODULES:,} modules: name a package in it"
                break
            self._look_into(module, found)
        return found

    def verdict(self, package: str, op_classpath: str) -> Verdict:
        """Return what a class path below a package is, as `below` sees it; only what that takes is read."""
        module_name, _, name = op_classpath.rpartition(".")
        below = op_classpath.removeprefix(f"{package}.")
        if not all(map(_is_public, below.split("."))) or op_classpath.count(".") > _DEEPEST:
            return Verdict(Kind.EXACT, "a name that begins with an underscore is not public")
        module = self.files.locate(module_name)
        if module is None:
            return Verdict(
                Kind.PLAIN, f"there is no module {module_name} here; install it, or name its folder in PYTHONPATH"
            )
        try:
            if name not in facts_of(module).classes:
                return Verdict(Kind.PLAIN, f"{module_name} does not define it")
            return self._kinds.verdict(module, name)
        except Unreadable as error:
            return Verdict(Kind.EXACT, f"{module_name} cannot be read: {error}")

    def _walk(self, module: ModuleFile, found: Found) -> Iterator[ModuleFile]:
        yield module
        try:
            children = list(self.files.children(module))
        except Unreadable as error:
            found.unread[module.name] = str(error)
            return
        for child in children:
            if _is_public(child.name.rpartition(".")[2]) and child.name.count(".") < _DEEPEST:
                yield from self._walk(child, found)

    def _look_into(self, module: ModuleFile, found: Found) -> None:
        try:
            names = [name for name in facts_of(module).classes if _is_public(name)]
        except Unreadable as error:
            found.unread[module.name] = str(error)
            return
        for name in names:
            path, verdict = f"{module.name}.{name}", self._kinds.verdict(module, name)
            try:
                canonical_classpath(path)
            except ClassRefused:
                continue  # letters beyond ASCII: no entry could name it
            if verdict.kind is Kind.SENSOR:
                found.classes.add(path)
            elif verdict.kind is Kind.EXACT and (verdict.is_likely or "sensor" in name.lower()):
                found.left_out[path] = verdict.why


def _is_public(name: str) -> bool:
    return not name.startswith("_")
