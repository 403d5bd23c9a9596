"""Budgets: how often a backend may be asked, and by how many pokes at once. Pure.

A budget is written as ``50/s``, ``600/m``, ``8 at once``, or ``50/s, 8 at once``, for the name of a backend or for a
pattern of names, in which ``*`` stands for any letters. All backends that a pattern covers share its budget. The first
budget that covers a backend is its budget.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

MOST = 100  # budgets
HIGHEST = 1_000_000.0  # pokes a second, and pokes at once
LOWEST = 1 / 3600  # pokes a second
_LONGEST = 100  # characters of a pattern
_PATTERN = re.compile(r"[!-~]+", re.ASCII)
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*/\s*(s|m|h)")
_AT_ONCE = re.compile(r"([0-9]+)\s+at\s+once")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_KEPT = 10_000  # names of backends whose budget is remembered


class Budget(NamedTuple):
    """What the backends of a pattern can bear.

    :param per_second: pokes a second; None: any number.
    :param at_once: pokes at once; None: any number.
    """

    pattern: str
    per_second: float | None
    at_once: int | None

    def __str__(self) -> str:
        rate = None if self.per_second is None else _spell_rate(self.per_second)
        return ", ".join(each for each in (rate, self.at_once and f"{self.at_once} at once") if each)


def _spell_rate(per_second: float) -> str:
    unit, seconds = next((each for each in _SECONDS.items() if per_second * each[1] >= 1), ("h", 3600))
    return f"{per_second * seconds:.6f}".rstrip("0").rstrip(".") + f"/{unit}"


def read_budgets(value: object) -> tuple[Budget, ...]:
    """Read budgets: a JSON object of names or patterns, each with its budget, or the same as a mapping.

    :raises ValueError: with one line that says what is wrong and how it is written.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError(f"is not JSON: {_EXAMPLE}") from None
    if isinstance(value, tuple) and all(isinstance(each, Budget) for each in value):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"is no JSON object: {_EXAMPLE}")
    if len(value) > MOST:
        raise ValueError(f"has {len(value)} budgets; {MOST} are allowed: name backends by patterns")
    return tuple(_budget(pattern, said) for pattern, said in value.items())


_EXAMPLE = 'write it like {"warehouse": "50/s, 8 at once", "s3*": "100/s"}'


def _budget(pattern: object, said: object) -> Budget:
    if not isinstance(pattern, str) or not _PATTERN.fullmatch(pattern) or len(pattern) > _LONGEST:
        raise ValueError(f"{ascii(pattern)[:80]} is no name of a backend, nor a pattern like 's3*'")
    if not isinstance(said, str):
        raise ValueError(f"the budget of {pattern} is no text like '50/s, 8 at once'")
    rate: float | None = None
    at_once: int | None = None
    for part in said.split(","):
        if (found := _RATE.fullmatch(part.strip())) is not None and rate is None:
            rate = float(found[1]) / _SECONDS[found[2]]
        elif (found := _AT_ONCE.fullmatch(part.strip())) is not None and at_once is None:
            at_once = int(found[1])
        else:
            raise ValueError(f"the budget of {pattern} is {said[:80]!r}: write it like '50/s, 8 at once'")
    if rate is not None and not LOWEST <= rate <= HIGHEST:
        raise ValueError(f"the budget of {pattern} allows {said[:80]!r}: from 1/h to {HIGHEST:,.0f}/s can be set")
    if at_once is not None and not 1 <= at_once <= HIGHEST:
        raise ValueError(f"the budget of {pattern} allows {at_once} at once: 1 is the least")
    return Budget(pattern, rate, at_once)


def as_text(budgets: Iterable[Budget]) -> str:
    """Write budgets as `read_budgets` reads them; no text if there are none."""
    found = {budget.pattern: str(budget) for budget in budgets}
    return json.dumps(found) if found else ""


class Budgets:
    """The budgets of a pool, in their order. Safe to share between threads."""

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self._budgets = tuple(budgets)
        self._patterns = [_pattern(budget.pattern) for budget in self._budgets]
        self._found: dict[str, Budget | None] = {}

    def __bool__(self) -> bool:
        return bool(self._budgets)

    def covers(self, backend: str) -> bool:
        """Whether a backend has a budget."""
        return self.of(backend) is not None

    def of(self, backend: str) -> Budget | None:
        """Return the budget of a backend; None: it has none."""
        try:
            return self._found[backend]
        except KeyError:
            pairs = zip(self._budgets, self._patterns, strict=True)
            found = next((budget for budget, pattern in pairs if pattern.fullmatch(backend)), None)
            if len(self._found) >= _KEPT:
                self._found.clear()
            self._found[backend] = found
            return found


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, text.split("*"))), re.DOTALL)
