"""The code that a class comes to when it is called, as a digest: which function, class or module each name stands for.

A file may define two things under one name, and choose by its environment, a Variable or the date when it is imported.
What a function imports when it is called is left out: only a first poke has that, and the text of the file names it.
"""

from collections import deque
from functools import lru_cache, partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

from sensorpool.airflow.proof.state import references, value_digest
from sensorpool.airflow.proof.state.code_names import names_in
from sensorpool.airflow.proof.state.held_code import attributes_of
from sensorpool.airflow.proof.state.places import QUALNAME, codes_at, held_by

_MOST = 400  # classes and functions


def digest_of_code(cls: type) -> str:
    """Return the digest of the code of a company's class, and of what that names of its company."""
    return value_digest.digest(_Search(cls).found)


@lru_cache(4_096)
def digest_of(code: CodeType) -> str:
    """Return a digest of compiled code: the same in each process that has read the same source."""
    names = [*code.co_names], [*code.co_varnames], [*code.co_freevars], [*code.co_cellvars]
    place = [code.co_qualname, code.co_firstlineno]
    return value_digest.digest([place, code.co_code.hex(), names, [_constant(each) for each in code.co_consts]])


def _constant(value: Any) -> Any:
    match value:
        case CodeType():
            return digest_of(value)
        case tuple():
            return [_constant(each) for each in value]
        case frozenset():
            return sorted(map(repr, value))
    return [type(value).__name__, repr(value)]


class _Search:
    """Follows names from a class to the code that they stand for."""

    def __init__(self, cls: type) -> None:
        self.found: list[list[str]] = []
        self._is_ours = partial(references.is_of_company, references.company_of(cls))
        self._queue: deque[Any] = deque([cls])
        seen: dict[int, Any] = {}
        while self._queue and len(seen) < _MOST:
            code = self._queue.popleft()
            if id(code) not in seen:
                seen[id(code)] = code
                (self._follow_function if type(code) is FunctionType else self._follow_class)(code)

    def _follow_function(self, function: FunctionType) -> None:
        owner = self._spelt(function)
        for name, value in {"__wrapped__": vars(function).get("__wrapped__"), **held_by(function)}.items():
            self._note(owner, name, value)
        own = function.__globals__
        if not self._is_ours(own.get("__name__")):
            return
        names = names_in(function.__code__)
        modules: deque[Any] = deque()
        for name in sorted(names.of_module & own.keys()):
            self._note(owner, name, own[name], modules)
        seen = [own]
        while modules and len(seen) < _MOST:
            module = modules.popleft()
            if not any(module is each for each in seen) and self._is_ours(module.get("__name__")):
                seen.append(module)
                for name in sorted(names.attributes & module.keys()):
                    self._note(str(module.get("__name__")), name, module[name], modules)

    def _follow_class(self, cls: Any) -> None:
        if self._is_ours(vars(cls).get("__module__")):
            owner = self._spelt(cls)
            for base in (type(cls), *cls.__mro__):
                self._note(owner, "", base)
            for name, value in attributes_of(cls).items():
                self._note(owner, name, value)

    def _note(self, owner: str, name: str, value: Any, modules: deque[Any] | None = None) -> None:
        if issubclass(type(value), ModuleType):
            self.found.append([owner, name, str(vars(value).get("__name__"))])
            if modules is not None:
                modules.append(vars(value))
            return
        for path, code in codes_at(value, name, self._is_ours):
            self.found.append([owner, path, self._spelt(code)])
            self._queue.append(code)

    def _spelt(self, code: Any) -> str:
        if type(code) is FunctionType:
            module = str(code.__globals__.get("__name__"))
            return f"{module}.{digest_of(code.__code__) if self._is_ours(module) else code.__qualname__}"
        return f"{vars(code).get('__module__')}.{QUALNAME(code)}"
