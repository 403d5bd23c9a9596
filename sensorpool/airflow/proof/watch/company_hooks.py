"""Hooks of a company that a poke gets by a Connection: a reviewed sensor may ask by one, too.

A class of such a hook, or its module, may keep a token, a role or a count. All sensors of a process share that, as they
share the state of a sensor's class (`state.shared_state`). Airflow's own hooks, and those of the providers that
Airflow's project publishes, are not looked at.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

from airflow.sdk import BaseHook

from sensorpool.airflow.compat import hook_classes
from sensorpool.airflow.proof.state import references, shared_state
from sensorpool.airflow.proof.state.shared_state import SharedState
from sensorpool.instrumentation.redaction import one_line

Follow = Callable[[type, Callable[[], object]], object]

_WORD = "(hook)"  # the beginning of the names of digests


class HooksOfSensor:
    """The companies' hooks that the pokes of one sensor of the pool got.

    :param registered: digests of the state that the first poke found (`digests`).
    """

    __slots__ = ("registered", "states")

    def __init__(self, registered: Mapping[str, str]) -> None:
        self.registered = registered
        self.states: dict[type, SharedState] = {}


class CompanyHooks:
    """The classes of companies' hooks that were seen, each with the state that it had before. Threads may share it."""

    def __init__(self, *, caches: bool = False) -> None:
        self._caches = caches
        self._states: dict[type, SharedState] = {}
        self._lock = Lock()

    def __iter__(self) -> Iterator[type]:
        return iter(list(self._states))

    def __len__(self) -> int:
        return len(self._states)

    def add(self, hook: type) -> Iterator[tuple[type, SharedState]]:
        """Add the class of a hook; yield it, and its bases of other companies, with their state."""
        for cls in _classes_of(hook):
            with self._lock:
                if cls not in self._states:
                    self._states[cls] = SharedState(cls, caches=self._caches)
                state = self._states[cls]
            yield cls, state

    def changed(self) -> str | None:
        """Return what has changed since; None if nothing has."""
        return changed_of(list(self._states.values()))


@contextmanager
def noting(sensor: Any, hooks: CompanyHooks, note: Callable[[str], object], follow: Follow) -> Iterator[None]:
    """Note the hooks that a poke gets, and those that its sensor has.

    :param hooks: has those of the sensor's earlier pokes, and gets the new ones.
    :param note: called when a hook cannot be watched.
    :param follow: called with each class of a company before its hook is made, and with what to call after imports.
    """

    def hear(hook: type) -> None:
        try:
            for cls, state in hooks.add(hook):
                follow(cls, state.extend)
        except Exception as error:  # an odd class; the error is none of its poke
            note(f"gets a hook that cannot be watched: {one_line(error)}")

    for hook in {*hooks, *held_by(sensor)}:
        hear(hook)
    with hook_classes.heard(hear):
        yield


def held_by(sensor: Any) -> set[type]:
    """Return the classes of the hooks that a sensor has in its attributes."""
    return {type(value) for value in vars(sensor).values() if isinstance(value, BaseHook)}


def digests(hooks: Iterable[type]) -> dict[str, str]:
    """Return a digest of each part of the state of hooks: a worker tells the pool, which compares (`hooks_in_pool`)."""
    return {f"{_WORD}{name}": digest for cls in hooks for name, digest in shared_state.digests(cls, ()).items()}


def read_digests(words: str) -> Mapping[str, str]:
    """Return the registered digests of hooks by the names of their parts.

    :param words: separated by spaces; other words are skipped.
    """
    pairs = (word.removeprefix(_WORD).partition("=") for word in words.split() if word.startswith(_WORD))
    return {name: digest for name, _, digest in pairs}


def is_word(word: str) -> bool:
    """Whether a word is a digest of a hook's state."""
    return word.startswith(_WORD)


def changed_of(states: Iterable[SharedState]) -> str | None:
    """Return what has changed of states; None if nothing has."""
    return next((name for state in states if (name := state.changed()) is not None), None)


def _classes_of(hook: type) -> Iterable[type]:
    found: dict[frozenset[str], type] = {}
    for cls in hook_classes.companies_classes(hook):
        found.setdefault(references.company_of(cls), cls)
    return found.values()
