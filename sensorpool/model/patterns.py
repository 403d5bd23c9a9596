"""Patterns of class paths: ``mycompany.sensors.*`` covers all class paths below that package, and is nothing else.

`sensorpool.config.allowlist` says which of the classes below it a pattern enables.
"""

import re

from sensorpool.errors import ClassRefused
from sensorpool.model.identity import MAX_CLASSPATH_LENGTH, canonical_classpath

_PATTERN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\.\*", re.ASCII)
_ANY = "*?["  # what elsewhere stands for any letters


def canonical_entry(entry: object) -> str:
    """Return the one spelling of an entry of the allowlist, a class path or a pattern.

    :raises ClassRefused: when it is neither.
    """
    if not isinstance(entry, str) or not any(letter in entry for letter in _ANY):
        return canonical_classpath(entry)
    spelled = entry.strip().replace(":", ".", 1)
    if not spelled.strip("*."):
        raise ClassRefused(
            f"{ascii(entry)[:80]} would enable every class: name a package in front, as in 'mycompany.sensors.*'"
        )
    if not _PATTERN.fullmatch(spelled) or len(spelled) > MAX_CLASSPATH_LENGTH:
        raise ClassRefused(
            f"{ascii(entry)[:80]} is no pattern: write it as 'mycompany.sensors.*', a package with one .* at its end"
        )
    return spelled


def is_pattern(entry: str) -> bool:
    """Whether a canonical entry is a pattern."""
    return entry.endswith(".*")


def package_of(pattern: str) -> str:
    """Return the package (or module) that a canonical pattern names."""
    return pattern.removesuffix(".*")


def covers(pattern: str, op_classpath: str) -> bool:
    """Whether a class path is below the package of a canonical pattern. The pattern need not enable it."""
    return op_classpath.startswith(pattern[:-1])
