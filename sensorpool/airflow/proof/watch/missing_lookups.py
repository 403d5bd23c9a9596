"""Lookups of a task's first poke: Connections and Variables that it did not find, or found in the environment.

Words in the poke_context say which, by digests. A poke in the pool that does not find a missing one goes on, as it does
natively: the sensor may wait for that Variable. Any other lookup that finds nothing in the pool tells nothing about the
condition: the worker may have a variable in its environment, a file or a secrets backend that the pool lacks. Nor does
the value in Airflow's database, of one that the worker found in its environment and the pool does not.
"""

import hashlib
from collections.abc import Collection

_WORD = "(missing)="
_ENVIRONMENT = "(environment)="
_UNKNOWN = "?"  # there was no first poke on a worker


def as_word(names: Collection[str] | None) -> str:
    """Return the word for a poke_context; an empty string if nothing is missing.

    :param names: the missing Connections and Variables; None if there was no first poke.
    """
    if names is None:
        return _WORD + _UNKNOWN
    return _WORD + ",".join(sorted(map(_digest, names))) if names else ""


def is_word(word: str) -> bool:
    """Whether a word is one of `as_word` or `environment_as_word`."""
    return word.startswith((_WORD, _ENVIRONMENT))


def environment_as_word(names: Collection[str]) -> str:
    """Return the word for a poke_context; an empty string without names.

    :param names: Connections and Variables that were found in the environment.
    """
    return _ENVIRONMENT + ",".join(sorted({_digest(name.upper()) for name in names})) if names else ""


def read_environment(words: str) -> frozenset[str]:
    """Return the digests of what was found in the environment.

    :param words: separated by spaces; other words are skipped.
    """
    digests = next((word.removeprefix(_ENVIRONMENT) for word in words.split() if word.startswith(_ENVIRONMENT)), "")
    return frozenset(digests.split(",")) - {""}


def was_in_environment(name: str, digests: frozenset[str]) -> bool:
    """Whether a Connection or Variable was found in the environment, where names are in capitals."""
    return _digest(name.upper()) in digests


def read(words: str) -> frozenset[str] | None:
    """Return the digests of what was missing; None if there was no first poke.

    :param words: separated by spaces; other words are skipped.
    """
    digests = next((word.removeprefix(_WORD) for word in words.split() if word.startswith(_WORD)), "")
    return None if digests == _UNKNOWN else frozenset(digests.split(",")) - {""}


def was_missing(name: str, digests: frozenset[str]) -> bool:
    """Whether a Connection or Variable is among the missing ones."""
    return _digest(name) in digests


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:24]
