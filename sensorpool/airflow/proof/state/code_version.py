"""The version of the code of a company's class: a digest of sources. Where it is in doubt, there is none.

The sources are those of the modules of the class and its bases, and of all modules of the company that these import, in
turn. The files are found and read; nothing of them is imported. An installed package adds its version, for it may have
more than sources.
"""

import ast
import hashlib
import os
import platform
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from importlib import metadata

from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.own_execute import UNREADABLE
from sensorpool.airflow.proof.state import references
from sensorpool.airflow.proof.state.module_files import ModuleFile, ModuleFiles, Unreadable
from sensorpool.config.version import __version__

MOST = 1_000  # modules
_COARSE = 0.1  # seconds by which the times of a file system may lie behind the clock
_OTHERS = frozenset({"airflow", "sensorpool"}) | sys.stdlib_module_names
# code by these names is not found by reading imports
_DYNAMIC = frozenset(
    {
        *("__import__", "entry_points", "eval", "exec", "exec_module", "import_module", "import_string"),
        *("iter_entry_points", "load_module", "load_source", "module_from_spec", "resolve_name", "run_module"),
        *("run_path", "spec_from_file_location", "SourceFileLoader", "SourcelessFileLoader"),
    }
)
# modules that find code in another way than by imports
_LOADERS = frozenset({"cloudpickle", "dill", "imp", "marshal", "pickle", "pydoc", "runpy", "shelve", "zipimport"})
# modules that have such names, and may be asked for them by a text
_HAVE_DYNAMIC = frozenset({"__builtins__", "builtins", "importlib"})
_ALL = "*"
_NAMING = (ast.Import, ast.ImportFrom, ast.Name, ast.Attribute)


def version_of(cls: type, loaded_from: float) -> str:
    """Return the version of the code of a class.

    :param loaded_from: seconds since 1970; a file that has changed since then may be another one than was imported.
    :raises NotPoolable: when no version can be told.
    """
    modules = list(dict.fromkeys(str(base.__module__) for base in cls.__mro__))
    packages = {references.package_of(name) for name in modules if not known_sensors.is_of_reviewed(name)} - _OTHERS
    digest = hashlib.sha256()
    for fact in (__version__, platform.python_version(), *map(_release, sorted({"apache-airflow", *packages}))):
        digest.update(f"{fact}\n".encode())
    for module, source in sorted(_sources(modules, frozenset(packages), loaded_from)):
        digest.update(f"{module} {len(source)}\n{source}\n".encode(errors="surrogatepass"))
    return digest.hexdigest()


def _sources(modules: list[str], company: frozenset[str], loaded_from: float) -> Iterator[tuple[str, str]]:
    """Yield the modules with their sources."""
    files, count = ModuleFiles(), 0
    queue = deque(name for name in modules if references.package_of(name) not in _OTHERS)
    bases, seen = set(queue), set[str]()
    while queue:
        name = queue.popleft()
        if name in seen:
            continue
        seen.add(name)
        if name.endswith(f".{_ALL}"):
            queue.extend(_below(files, name.removesuffix(f".{_ALL}"), company))
            continue
        module = files.locate(name)
        if module is None:
            if name in bases:
                raise NotPoolable(f"the module {name} has no file, so its code has no version", "unproved")
            continue  # a name that is imported from a module is rarely a module
        if module.origin is None:
            continue  # a namespace package has no code
        if name not in bases and not _is_companys(module, company):
            continue
        count += 1
        if count > MOST:
            raise NotPoolable(f"its company's code has more than {MOST:,} modules, so it gets no version", "unproved")
        source = _source(module, loaded_from)
        yield name, source
        if _is_companys(module, company):
            queue.extend(_imported(module, source))


def _below(files: ModuleFiles, name: str, company: frozenset[str]) -> list[str]:
    """Return the modules right below a company's package: its ``__all__`` may name them.

    :raises NotPoolable: when it cannot be told.
    """
    module = files.locate(name)
    if module is None or not module.locations or not _is_companys(module, company):
        return []
    try:
        return [child.name for child in files.children(module)]
    except Unreadable as error:
        raise NotPoolable(f"the code of {name} has no version: {error}", "unproved") from None


def _is_companys(module: ModuleFile, company: frozenset[str]) -> bool:
    package = references.package_of(module.name)
    if package in company:
        return True
    is_other = package.partition(".")[0] in _OTHERS or module.origin is None
    return not is_other and not references.is_installed(str(module.origin))


def _source(module: ModuleFile, loaded_from: float) -> str:
    loaded = getattr(sys.modules.get(module.name), "__file__", None) or module.origin
    if os.path.realpath(str(loaded)) != os.path.realpath(str(module.origin)):
        raise NotPoolable(f"{module.name} is imported from another file than is found now", "unproved")
    for path in (module.origin, getattr(module.loader, "archive", None)):
        try:
            changed = os.stat(path).st_ctime if path else 0.0
        except OSError:
            continue
        if changed >= loaded_from - _COARSE:
            raise NotPoolable(f"the file of {module.name} has changed since this process began", "unproved")
    try:
        return module.source()
    except Unreadable as error:
        raise NotPoolable(f"the code of {module.name} has no version: {error}", "unproved") from None


def _imported(module: ModuleFile, source: str) -> Iterator[str]:
    """Yield the names of modules that a source imports, their parents, and names that may be modules.

    :raises NotPoolable: when it cannot be told.
    """
    try:
        tree = ast.parse(source)
    except UNREADABLE:
        raise NotPoolable(f"the code of {module.name} cannot be read, so it has no version", "unproved") from None
    nodes = [node for node in ast.walk(tree) if isinstance(node, _NAMING)]
    if (used := _dynamic_in(nodes)) is not None:
        raise NotPoolable(f"{module.name} uses {used}, so the version of its code cannot be told", "unproved")
    package = module.name if module.locations else module.name.rpartition(".")[0]
    names: list[str] = []
    for node in nodes:
        match node:
            case ast.Import():
                names += [alias.name for alias in node.names]
            case ast.ImportFrom():
                parent = package.rsplit(".", node.level - 1)[0] if node.level else ""
                whole = f"{parent}.{node.module or ''}".strip(".")
                names += [whole, *(f"{whole}.{alias.name}" for alias in node.names)]
    names.append(module.name)
    for path in names:
        parts = path.split(".")
        yield from (".".join(parts[:count]) for count in range(len(parts), 0, -1))


def _dynamic_in(nodes: Sequence[ast.AST]) -> str | None:
    """Return a name by which a source finds code that its imports do not name; None if it has none."""
    owners = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    if alias.name.partition(".")[0] in _LOADERS or (alias.asname and alias.name in _HAVE_DYNAMIC):
                        return alias.name
            case ast.ImportFrom(module=path, names=names, level=level):
                taken = {alias.name for alias in names}
                if not level and str(path).partition(".")[0] in _LOADERS:
                    return str(path)
                if found := taken & _DYNAMIC or (
                    taken & {_ALL, "modules"} if path in {*_HAVE_DYNAMIC, "sys"} else set()
                ):
                    return min(found)
            case ast.Name(id=used) | ast.Attribute(attr=used) if used in _DYNAMIC:
                return used
            case ast.Name(id=used) if used in _HAVE_DYNAMIC and id(node) not in owners:
                return used
            case ast.Attribute(value=ast.Name(id="sys"), attr="modules"):
                return "sys.modules"
    return None


def _release(package: str) -> str:
    """Return the name and version of an installed package; its name alone where it has no version."""
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return package
