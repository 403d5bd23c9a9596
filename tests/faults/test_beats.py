"""Faults 10-11: no beat for a while, and two of them."""

from harness.service import kill_tree
from harness.until import until
from tests.faults.stand import Stand


def test_beat_dead_for_five_ticks(stand: Stand) -> None:
    service = stand.service
    for trial in stand.trials("10 beat dead for five ticks", full=20):
        with trial.fault():
            kill_tree(stand.beats.pop())
            until("five ticks without a look", lambda: _age(stand) > 5 * service.settings.tick)
            stand.beats.append(service.beat())
        until("a poke of all", lambda trial=trial: trial.is_poked(trial.healed_at))
        trial.end()
        assert trial.shortest_gap() > service.settings.poke_interval / 4, "one catch-up, no burst"


def test_two_beats(stand: Stand) -> None:
    """There is one poke an interval all the same."""
    service = stand.service
    trial = stand.trial("11 two beats")
    with trial.fault():
        second = service.beat("--loglevel=DEBUG")
        log = service.folder / f"beat-{service.processes.index(second)}.log"
        until(
            "ticks of the second one",
            lambda: log.read_text().count("a due entry is sent") >= 2 * len(service.pool.ranges),
        )
        trial.wait_for_pokes(5)
        assert second.poll() is None, "it has ended"
    trial.end()
    kill_tree(second)
    assert trial.extra_pokes() <= 0


def _age(stand: Stand) -> float:
    """Return the seconds since the last load of a range."""
    pool = stand.service.pool
    now = pool.database.read(pool.database.now)
    return (now - max(state.last for _, state in pool.leases.look(pool.ranges))) / 1000
