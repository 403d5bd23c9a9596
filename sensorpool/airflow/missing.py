"""Connections and Variables that a task's first poke has looked up on its worker: not there, or in its environment.

They are told in a poke_context by a word of digests. A poke in the pool that does not find one of these goes on, as it
does natively: it may wait for that Variable. What it does not find besides is no answer of its condition: its worker
may have what the pool has not, a variable in its environment, a file, a secrets backend. Nor is what Airflow's
database has of one that the worker found in its environment, and the pool does not find in its own.
"""

import hashlib
from collections.abc import Collection

_WORD = "(missing)="
_ENVIRONMENT = "(environment)="
_UNKNOWN = "?"  # nobody has looked: the first poke is the pool's


def word_of(names: Collection[str] | None) -> str:
    """Say what was not there; an empty string if that is nothing.

    :param names: None, if nobody has looked.
    """
    if names is None:
        return _WORD + _UNKNOWN
    return _WORD + ",".join(sorted(map(_digest, names))) if names else ""


def is_word(word: str) -> bool:
    """Whether a word says what was not there, or was in the environment."""
    return word.startswith((_WORD, _ENVIRONMENT))


def word_of_environment(names: Collection[str]) -> str:
    """Say what was in the environment; an empty string if that is nothing."""
    return _ENVIRONMENT + ",".join(sorted({_digest(name.upper()) for name in names})) if names else ""


def read_environment(told: str) -> frozenset[str]:
    """Return the digests of what was in the environment.

    :param told: words; of the others nothing is read.
    """
    said = next((word.removeprefix(_ENVIRONMENT) for word in told.split() if word.startswith(_ENVIRONMENT)), "")
    return frozenset(said.split(",")) - {""}


def was_in_environment(name: str, digests: frozenset[str]) -> bool:
    """Whether something is among what was in the environment, where names are in capitals."""
    return _digest(name.upper()) in digests


def read(told: str) -> frozenset[str] | None:
    """Return the digests of what was not there; None, if nobody has looked.

    :param told: words; of the others nothing is read.
    """
    said = next((word.removeprefix(_WORD) for word in told.split() if word.startswith(_WORD)), "")
    return None if said == _UNKNOWN else frozenset(said.split(",")) - {""}


def was_missing(name: str, digests: frozenset[str]) -> bool:
    """Whether something is among what was not there."""
    return _digest(name) in digests


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:24]
