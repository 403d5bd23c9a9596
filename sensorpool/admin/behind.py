"""Checks of what is behind in a pool that works: `status`, the pages and `doctor` show it, and `health` does not."""

from collections.abc import Iterator

from sensorpool.admin import backends
from sensorpool.admin.look import Finding, Look
from sensorpool.model.words import counted
from sensorpool.store import late_conditions, troubles


def _late(look: Look) -> Iterator[Finding]:
    if late := look.read(late_conditions.count):
        said = f"later than usual: {counted(late, 'condition')} (`sensorpool list --late` names who waits)"
        yield Finding("late", "warning", said)


def _quarantined(look: Look) -> Iterator[Finding]:
    if count := look.read(troubles.count_quarantined):
        said = f"in quarantine: {counted(count, 'condition')} (`sensorpool quarantine` lists them)"
        yield Finding("quarantine", "warning", said)


def _budgets(look: Look) -> Iterator[Finding]:
    _ = look.leases
    for each in backends.budgets(look.pool):
        if each["waiting"]:
            said = f"waiting for the budget of {each['backends']} ({each['budget']}): "
            said += f"{counted(each['waiting'], 'group')}, for up to {each['longest_s']:.0f} s"
            yield Finding("budget", "warning", said)


def _overrunning(look: Look) -> Iterator[Finding]:
    if count := look.read(troubles.count_overrunning):
        said = f"overran SENSORPOOL_POKE_TIMEOUT: the last poke of {counted(count, 'group')}"
        yield Finding("pokes", "warning", said)


CHECKS = (
    ("late", _late),
    ("quarantine", _quarantined),
    ("budget", _budgets),
    ("pokes", _overrunning),
)
"""Each with the subject under which its error is told."""
