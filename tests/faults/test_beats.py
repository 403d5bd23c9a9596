"""Faults 10-11: no beat for a while, and two of them."""

from itertools import pairwise

from tests.faults.stand import Stand
from tests.faults.trial import Trial, runs
from tests.service import kill_tree, until


def test_beat_dead_for_five_ticks(stand: Stand) -> None:
    service = stand.service
    for _ in range(runs(full=20)):
        trial = stand.trial("10 beat dead for five ticks")
        with trial.fault():
            kill_tree(stand.beats.pop())
            until("five ticks without a look", lambda: _age(stand) > 5 * service.settings.tick)
            stand.beats.append(service.beat())
        until("a poke of all", lambda trial=trial: trial.is_poked(trial.healed_at))
        trial.end()
        # one catch-up, no burst: two pokes are half an interval apart at least
        for name, some in trial.pokes().items():
            gaps = [later.at - earlier.at for earlier, later in pairwise(some[1:])]
            assert not gaps or min(gaps) > service.settings.poke_interval / 4, (name, gaps)


def test_two_beats(stand: Stand) -> None:
    """One poke an interval all the same."""
    service = stand.service
    trial = stand.trial("11 two beats")
    with trial.fault():
        second = service.beat()
        until("some pokes", lambda: len(trial.pokes().get(_patient(trial), ())) > 5)
    trial.end()
    kill_tree(second)
    times = [poke.at for poke in trial.pokes()[_patient(trial)]]
    gaps = [later - earlier for earlier, later in pairwise(times[1:])]
    assert min(gaps) > service.settings.poke_interval / 2, gaps


def _patient(trial: Trial) -> str:
    [name] = trial.patient.values()
    return name


def _age(stand: Stand) -> float:
    """Seconds since a range was looked at."""
    pool = stand.service.pool
    now = pool.database.read(pool.database.now)
    return (now - max(state.last for _, state, _ in pool.leases.look(pool.ranges))) / 1000
