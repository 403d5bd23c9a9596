"""Faults 8-9: a worker freezes and thaws (SIGSTOP, SIGCONT). Its late facts harm nobody, nor do the locks it holds."""

import signal
from pathlib import Path

import psutil

from tests.faults.stand import Stand
from tests.faults.trial import Trial
from tests.service import until


def family(pid: int) -> list[psutil.Process]:
    """A process and its children."""
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def settled_meanwhile(trial: Trial) -> bool:
    """Whether others have settled what came true while one is frozen."""
    names = set(trial.true_at)
    ids = [instance_id for instance_id, name in (trial.waiting | trial.tight).items() if name in names]
    return "sensing" not in trial.service.pool.wait(ids, 0).values()


def test_worker_frozen_past_its_lease(stand: Stand) -> None:
    for trial in stand.trials("8 worker frozen past its lease, then thawed", full=30):
        frozen = family(stand.workers[0].pid)
        with trial.fault():
            for process in frozen:
                process.suspend()
            stand.add_worker()
            until("the others to settle", lambda trial=trial: settled_meanwhile(trial))
            for process in frozen:
                process.resume()
        trial.end()
        stand.workers.pop().send_signal(signal.SIGTERM)


def test_worker_frozen_in_its_settle(stand: Stand, tmp_path: Path) -> None:
    """It holds the locks of its groups; the database ends its transaction after three seconds."""
    for number, trial in enumerate(stand.trials("9 worker frozen inside the settle transaction", full=30)):
        once = tmp_path / f"stopped{number}"
        with trial.fault():
            worker = stand.add_worker(SENSORPOOL_FAILPOINT=f"settle.before_commit:stop:{once}")
            stand.workers[0].send_signal(signal.SIGSTOP)  # so that the other one gets to work
            for child in psutil.Process(stand.workers[0].pid).children():
                child.suspend()
            until("the freeze", once.exists)
            for process in family(stand.workers[0].pid):
                process.resume()
            until("the others to settle", lambda trial=trial: settled_meanwhile(trial))
            for process in family(worker.pid):
                process.resume()
        trial.end()
        stand.workers.remove(worker)
        worker.send_signal(signal.SIGTERM)
