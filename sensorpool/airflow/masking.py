"""The secrets that Airflow knows in this process: of Connections and Variables that were read, of its configuration.

Airflow registers them with its maskers as it reads them. It has two: one for its own code and one for its Task SDK.
Nothing here imports airflow: a process that has not done so knows no secret of it.
"""

import re
import sys

MASKERS = ("airflow._shared.secrets_masker", "airflow.sdk._shared.secrets_masker")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)

_seen: dict[str, frozenset[str]] = {}


def secrets() -> list[str]:
    """Return what the maskers have come to know since the last call (`sensorpool.instrumentation.redaction.ask`)."""
    new: set[str] = set()
    for name in MASKERS:
        masker = getattr(sys.modules.get(name), "_secrets_masker", None)
        if masker is None:
            continue
        patterns, seen = masker().patterns, _seen.get(name, frozenset())
        if len(patterns) != len(seen):
            _seen[name] = frozenset(patterns)
            new |= _seen[name] - seen
    return [_ESCAPED.sub(r"\1", pattern) for pattern in new]  # they are escaped for a regular expression
