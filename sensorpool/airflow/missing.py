"""Connections and Variables that a task's first poke has looked up on its worker, and that were not there.

They are told in a poke_context by a word of digests. A poke in the pool that does not find one of these goes on, as it
does natively: it may wait for that Variable. What it does not find besides is no answer of its condition: its worker
may have what the pool has not, a variable in its environment, a file, a secrets backend.
"""

import hashlib
from collections.abc import Collection

_WORD = "(missing)="
_UNKNOWN = "?"  # nobody has looked: the first poke is the pool's


def word_of(names: Collection[str] | None) -> str:
    """Say what was not there; an empty string if that is nothing.

    :param names: None, if nobody has looked.
    """
    if names is None:
        return _WORD + _UNKNOWN
    return _WORD + ",".join(sorted(map(_digest, names))) if names else ""


def is_word(word: str) -> bool:
    """Whether a word says what was not there."""
    return word.startswith(_WORD)


def read(told: str) -> frozenset[str] | None:
    """Return the digests of what was not there; None, if nobody has looked.

    :param told: words; of the others nothing is read.
    """
    said = next((word.removeprefix(_WORD) for word in told.split() if is_word(word)), "")
    return None if said == _UNKNOWN else frozenset(said.split(",")) - {""}


def was_missing(name: str, digests: frozenset[str]) -> bool:
    """Whether something is among what was not there."""
    return _digest(name) in digests


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:24]
