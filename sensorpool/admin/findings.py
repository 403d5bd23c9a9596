"""The one list of checks: `doctor` makes all of them, `health` those of whether the pool works now.

`status` and the pages show what `health` finds, and what is behind; `explain` says by it why nothing is poked.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TypeVar

from sensorpool.admin import working
from sensorpool.admin.look import Finding, Look
from sensorpool.client.pool_view import PoolView
from sensorpool.config.settings import Settings
from sensorpool.errors import SensorpoolError
from sensorpool.model.words import counted
from sensorpool.store import late_conditions, troubles

Looked = TypeVar("Looked")


_COUNTS: tuple[tuple[str, Callable[..., int], str, str], ...] = (
    ("late", late_conditions.count, "condition", "later than usual: {} (`sensorpool list --late` names who waits)"),
    ("quarantine", troubles.count_quarantined, "condition", "in quarantine: {} (`sensorpool quarantine` lists them)"),
    ("pokes", troubles.count_overrunning, "group", "overran SENSORPOOL_POKE_TIMEOUT: the last poke of {}"),
)


def _counts(look: Look) -> Iterator[Finding]:
    for subject, question, noun, said in _COUNTS:
        if count := look.read(question):
            yield Finding(subject, "warning", said.format(counted(count, noun)))


def _budgets(look: Look) -> Iterator[Finding]:
    for each in look.budgets:
        if each.waiting:
            waits = f"{counted(each.waiting, 'group')}, for up to {each.longest:.0f} s"
            said = f"waiting for the budget of {each.budget.pattern} ({each.budget}): {waits}"
            yield Finding("budget", "warning", said)


_BEHIND = (("late", _counts), ("budget", _budgets))
"""Checks of what is behind in a pool that works: `health` leaves them out."""


def health(pool: PoolView) -> list[str]:
    """Return a line for each problem of a pool; an empty list if it works."""
    return [each.said for each in wrong(pool)]


def wrong(pool: PoolView) -> list[Finding]:
    """Return what keeps a pool from its work."""
    return [each for each in _made(Look(pool), working.CHECKS) if each.level == "wrong"]


def of_pool(look: Look) -> list[Finding]:
    """Return what is not in order in a pool: first what is wrong, then what is behind."""
    found = [each for each in _made(look, [*working.CHECKS, *_BEHIND]) if each.level != "ok"]
    return sorted(found, key=lambda each: each.level != "wrong")


def doctor(settings: Settings) -> Iterator[Finding]:
    """Make all checks, those of the installation too; an error of one does not end the others."""
    from sensorpool.admin import installation  # imports the broker's packages
    from sensorpool.client.pool import Pool

    try:
        pool = Pool(settings)
    except SensorpoolError as error:
        yield Finding("database", "wrong", str(error))
    else:
        with closing(pool):
            yield from _made(Look(pool), [*working.CHECKS, *_BEHIND, *installation.OF_SERVERS])
            yield from installation.of_other_packages(pool)
    yield from _made(settings, installation.OF_SETTINGS)


def _made(looked_at: Looked, checks: Sequence[tuple[str, Callable[[Looked], Iterable[Finding]]]]) -> Iterator[Finding]:
    """Make checks. Several may find the same server away: that is one finding."""
    said: set[str] = set()
    for subject, check in checks:
        try:
            found = list(check(looked_at))
        except SensorpoolError as error:
            found = [Finding(subject, "wrong", str(error))]
        yield from (each for each in found if each.said not in said)
        said |= {each.said for each in found}
