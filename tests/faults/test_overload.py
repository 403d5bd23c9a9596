"""Fault 35, and overload: slow pokes, a backend that hangs for all groups, a storm of registrations, an endless DAG.

Nothing piles up, other groups are on time, and the operator sees the cause.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.scripted import land, pokes
from harness.service import Service
from harness.until import until
from tests.faults.stand import Stand
from tests.faults.trial import RECORDING, SENSOR, Record, Trial

SLOW, ENDS = f"{RECORDING}.Slow", f"{RECORDING}.Ends"


def test_pokes_slower_than_their_interval(
    make_service: Callable[..., Service], tmp_path: Path, record: Callable[[str], Record]
) -> None:
    """A poke takes three intervals: its turns are skipped and counted, and no two go on at once."""
    service = make_service(poke_timeout=20.0)
    service.start(workers=1)
    trial = Trial(
        service, record("35 pokes slower than the interval (recovery: how late the others were)"), measures=False
    )
    slow = service.pool.register(ENDS, {"folder": str(tmp_path), "name": "slow", "seconds": 6.0})
    with trial.fault():
        since = trial.wait_for_pokes(2)
        until("three slow pokes", lambda: len(pokes(tmp_path)["slow"]) >= 3)
    begun, ended = pokes(tmp_path)["slow"], pokes(tmp_path)["slow ended"]
    assert all(end.at <= begin.at for end, begin in zip(ended, begun[1:], strict=False)), "two at once"
    assert "busy=" in service.logs(), "skipped turns are counted"
    late = trial.lateness(since)
    trial.record.recovery.append(max(0.0, late))
    assert late < 3
    trial.end()
    land(tmp_path, "slow")
    assert set(service.pool.wait([slow.id], 60).values()) == {"success"}


@pytest.mark.parametrize(("what", "seconds"), [("answers slowly", 0.8), ("hangs", 30.0)])
def test_a_backend_for_everybody(stand: Stand, what: str, seconds: float) -> None:
    """300 groups of one class are more than its slots can poke in an interval; another class stays on time."""
    service, folder = stand.service, stand.service.folder
    trial = stand.trial(f"35 a backend {what} for 300 groups (the others' lateness)", measures=False)
    (folder / "slow").write_text(str(seconds))
    names = [f"{what} {number}" for number in range(300)]
    made = service.pool.register_many(
        {"sensor": SLOW, "poke_context": {"folder": str(folder), "name": name}} for name in names
    )
    with trial.fault():
        since = trial.wait_for_pokes(6)
        until("the backlog", lambda: any(r["left"] or r["isolated"] for r in service.json("status")["ranges"]))
    late = trial.lateness(since)
    trial.record.recovery.append(max(0.0, late))
    (folder / "slow").unlink()
    for name in names:
        land(folder, name)
    trial.end()
    assert set(service.pool.wait([instance.id for instance in made], 120).values()) == {"success"}
    assert late < 3, "far beyond an interval, also on a busy machine: what was measured is in the table"
    until("no backlog", lambda: not any(r["left"] for r in service.json("status")["ranges"]))


def test_a_storm_of_registrations(stand: Stand) -> None:
    """One DAG registers 20,000 conditions at once; older groups of the same class are late by two intervals at most."""
    service, folder = stand.service, stand.service.folder
    trial = stand.trial("43 20,000 registrations of one DAG (the others' lateness)", measures=False)
    with trial.fault():
        since = trial.wait_for_pokes(1)
        made = service.pool.register_many(
            (
                {
                    "sensor": SENSOR,
                    "poke_context": {"folder": str(folder), "name": f"storm{n}", "seconds": 0.002},
                    "dag_id": "storm",
                    "task_id": f"t{n}",
                    "run_id": "r",
                    "poke_interval": 600.0,
                }
                for n in range(20_000)
            ),
            try_out=False,
        )
        until("all poked", lambda: len(pokes(folder)) > 20_000, patience=120, every=2)
    late = trial.lateness(since)
    trial.record.recovery.append(max(0.0, late))
    trial.end()
    assert late < 4, "far beyond two intervals, also on a busy machine: what was measured is in the table"
    for start in range(0, len(made), 1_000):
        ids = [instance.id for instance in made[start : start + 1_000]]
        service.pool.settler.cancel(dict.fromkeys(ids, "over"))
