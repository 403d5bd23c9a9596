"""Faults 51 and 52: a backend refuses, throttles, hangs, comes and goes; Redis is lost with budgets on.

No sensor of it fails, it is asked less and less, others are on time, and one outage is one line of log.
"""

from pathlib import Path
from typing import Any

import pytest

from harness.scripted import land, pokes
from harness.until import until
from tests.faults.stand import Stand
from tests.faults.trial import OF_FAULTS, lasts
from tests.support.sensors.backends import tell

ASKS = "tests.support.sensors.backends.Asks"
GROUPS = 120
RATE = 40
INTERVAL = 2.0  # seconds


@pytest.fixture(scope="module")
def stand_settings() -> dict[str, Any]:
    """A budget for some backends."""
    return {"sensors": (*OF_FAULTS, ASKS), "budgets": f'{{"metered*": "{RATE}/s"}}'}


def register(stand: Stand, conn_id: str) -> dict[str, int]:
    """Register groups that ask a backend."""
    folder = str(stand.service.folder)
    names = [f"{conn_id}{number}" for number in range(GROUPS)]
    made = stand.service.pool.register_many(
        {"sensor": ASKS, "poke_context": {"folder": folder, "name": name, "conn_id": conn_id}} for name in names
    )
    return dict(zip(names, (instance.id for instance in made), strict=True))


def calls(folder: Path, names: dict[str, int]) -> int:
    """How many pokes these groups have had."""
    found = pokes(folder)
    return sum(len(found.get(name, ())) for name in names)


@pytest.mark.parametrize(
    ("what", "does"),
    [
        ("refuses", ("refuses",)),
        ("throttles", ("throttles 8",)),
        ("hangs", ("hangs",)),
        ("metered hangs", ("hangs",)),
        ("comes and goes", ("refuses", "answers") * 3),
    ],
)
def test_a_backend_that_is_away(stand: Stand, what: str, does: tuple[str, ...]) -> None:
    service, folder = stand.service, stand.service.folder
    conn_id = what.replace(" ", "-")
    made = register(stand, conn_id)
    until("a poke of each", lambda: pokes(folder).keys() >= made.keys())
    trial = stand.trial(f"51 a backend {what} (the others' lateness)", measures=False)
    with trial.fault():
        since, seen = trial.wait_for_pokes(1), 0
        for each in does:
            tell(folder, conn_id, each)
            if each == "answers":
                lasts(INTERVAL)
                continue
            until("the outage", lambda: [a for a in service.json("status")["away"] if a["backend"] == conn_id])
            before = calls(folder, made)
            lasts(2 * INTERVAL)
            if each != "half":  # then each second poke that asks finds it well again
                seen += calls(folder, made) - before
        assert seen < len(does) * GROUPS, "in two intervals each would have had two"
        tell(folder, conn_id, "answers")
    trial.record.recovery.append(max(0.0, trial.lateness(since)))
    for name in made:
        land(folder, name)
    trial.end()
    assert set(service.pool.wait(made.values(), 120).values()) == {"success"}
    said = [line for line in service.logs().splitlines() if "a backend is away" in line and conn_id in line]
    assert 1 <= len(said) <= does.count("refuses") + 1
    assert trial.record.recovery[-1] < 3


def test_redis_is_lost_with_budgets_on(stand: Stand) -> None:
    """What is left of the budget is lost with it: nothing is poked without Redis, and then no more than it allows."""
    service, folder = stand.service, stand.service.folder
    made = register(stand, "metered")
    trial = stand.trial("52 Redis lost with budgets on", measures=False)
    with trial.fault():
        until("a wait", lambda: service.json("status")["budgets"][0]["waiting"])
        assert service.pool.leases.store.client.dbsize()
        service.pool.leases.store.client.flushall()
        before = stand.redis.broken
        stand.redis.refuse()
        assert stand.redis.broken > before
        lasts(3.0)
        stand.redis.heal()
    found = pokes(folder)
    moments = sorted(poke.at for name in made for poke in found.get(name, ()))
    most = max(sum(at <= other < at + 1 for other in moments) for at in moments)
    assert most <= 2 * 2 * RATE, "a bucket that is lost is a full one"
    for name in made:
        land(folder, name)
    trial.end()
    assert set(service.pool.wait(made.values(), 120).values()) == {"success"}
