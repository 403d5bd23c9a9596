"""Faults 8-9: a worker freezes and thaws (SIGSTOP, SIGCONT). Its late facts and its locks do no harm."""

import signal
from pathlib import Path

import psutil
from sqlalchemy import text

from harness.until import until
from tests.faults.stand import Stand
from tests.faults.trial import Trial, lasts

LEASE_LOST = ("the lease was lost", "a child died in its job")


def family(pid: int) -> list[psutil.Process]:
    """A process and its children."""
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def settled_meanwhile(trial: Trial) -> bool:
    """Whether the other workers have settled the true conditions while one worker is frozen."""
    names = set(trial.true_at)
    ids = [instance_id for instance_id, name in (trial.waiting | trial.tight).items() if name in names]
    return "sensing" not in trial.service.pool.wait(ids, 0).values()


def test_worker_frozen_past_its_lease(stand: Stand, tmp_path: Path) -> None:
    """It freezes with the lease of a range, and with its facts."""
    for number, trial in enumerate(stand.trials("8 worker frozen past its lease, then thawed", full=30)):
        once = tmp_path / f"frozen{number}"
        with trial.fault():
            worker = stand.add_worker(SENSORPOOL_FAILPOINT=f"poke.after:stop:{once}")
            for process in family(stand.workers[0].pid):
                process.suspend()  # so that the other worker has work
            until("the freeze", once.exists)
            frozen = family(worker.pid)
            for process in frozen:
                process.suspend()
            for process in family(stand.workers[0].pid):
                process.resume()
            lasts(stand.service.settings.lease_ttl)  # otherwise it would still have the lease when it thaws
            until("the others to settle", lambda trial=trial: settled_meanwhile(trial))
            for process in frozen:
                process.resume()
            log = stand.service.folder / f"worker-{stand.service.processes.index(worker)}.log"
            # its job logs it, unless the watchdog ends the child, which stood still for so long
            until("that it has lost its lease", lambda log=log: any(end in log.read_text() for end in LEASE_LOST))
        trial.end()
        stand.workers.remove(worker)
        worker.send_signal(signal.SIGTERM)


def test_worker_frozen_in_its_settle(stand: Stand, tmp_path: Path) -> None:
    """It holds the locks of its groups; the database ends its transaction after three seconds."""
    for number, trial in enumerate(stand.trials("9 worker frozen inside the settle transaction", full=30)):
        once = tmp_path / f"stopped{number}"
        with trial.fault():
            worker = stand.add_worker(SENSORPOOL_FAILPOINT=f"settle.before_commit:stop:{once}")
            stand.workers[0].send_signal(signal.SIGSTOP)  # so that the other worker has work
            for child in psutil.Process(stand.workers[0].pid).children():
                child.suspend()
            until("the freeze", once.exists)
            until("locks that it holds", lambda: _idle_in_transaction(stand) > 0)
            for process in family(stand.workers[0].pid):
                process.resume()
            until("the others to settle", lambda trial=trial: settled_meanwhile(trial))
            for process in family(worker.pid):
                process.resume()
        trial.end()
        stand.workers.remove(worker)
        worker.send_signal(signal.SIGTERM)


def _idle_in_transaction(stand: Stand) -> int:
    query = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()"
    return int(stand.service.pool.database.read(lambda connection: connection.execute(text(query))).scalar_one())
