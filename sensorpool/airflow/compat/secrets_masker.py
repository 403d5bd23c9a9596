"""Airflow's maskers of secrets, and the secrets that they know in this process.

Airflow registers the secrets of its configuration, of Connections and of Variables with its maskers when it reads
them. There are two maskers: one for Airflow's core and one for its Task SDK. `new_secrets` does not import airflow: a
process that has not imported airflow knows none of its secrets.
"""

import re
import sys
from collections.abc import Callable
from typing import Any

MASKERS = ("airflow._shared.secrets_masker", "airflow.sdk._shared.secrets_masker")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ANY_DEPTH = 1_000

_seen: dict[str, frozenset[str]] = {}


def new_secrets() -> list[str]:
    """Return the secrets that the maskers have learned since the last call (`sensorpool.instrumentation.redaction`)."""
    new: set[str] = set()
    for name in MASKERS:
        masker = getattr(sys.modules.get(name), "_secrets_masker", None)
        if masker is None:
            continue
        patterns, seen = masker().patterns, _seen.get(name, frozenset())
        if len(patterns) != len(seen):
            _seen[name] = frozenset(patterns)
            new |= _seen[name] - seen
    return [_ESCAPED.sub(r"\1", pattern) for pattern in new]  # the patterns are escaped for a regular expression


def holds_secret(value: Any) -> bool:
    """Whether Airflow would mask a part of a value in a log: a known password, a key called token."""
    return any([redact(value, None, _ANY_DEPTH)] != [value] for redact in maskers())  # in lists NaN is equal to itself


def maskers() -> list[Callable[..., Any]]:
    """Return the functions of `MASKERS` that mask secrets, each with a value, its name and a depth as arguments."""
    from airflow.sdk._shared.secrets_masker import redact

    of_core = sys.modules.get(MASKERS[0])
    return [redact] if of_core is None else [redact, of_core.redact]
