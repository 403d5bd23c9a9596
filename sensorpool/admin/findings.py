"""The one list of checks: `doctor` makes all of them, `health` those of whether the pool works now.

`status` and the pages show what `health` finds, and what is behind; `explain` says by it why nothing is poked.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TypeVar

from sensorpool.admin import behind, working
from sensorpool.admin.look import Finding, Look
from sensorpool.client.pool_view import PoolView
from sensorpool.config.settings import Settings
from sensorpool.errors import SensorpoolError

Looked = TypeVar("Looked")


def health(pool: PoolView) -> list[str]:
    """Return a line for each problem of a pool; an empty list if it works."""
    return [each.said for each in wrong(pool)]


def wrong(pool: PoolView) -> list[Finding]:
    """Return what keeps a pool from its work."""
    return [each for each in _made(Look(pool), working.CHECKS) if each.level == "wrong"]


def of_pool(look: Look) -> list[Finding]:
    """Return what is not in order in a pool: first what is wrong, then what is behind."""
    found = [each for each in _made(look, [*working.CHECKS, *behind.CHECKS]) if each.level != "ok"]
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
            yield from _made(Look(pool), [*working.CHECKS, *behind.CHECKS, *installation.OF_SERVERS])
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
