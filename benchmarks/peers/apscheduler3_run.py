"""APScheduler with a job for each sensor; runs in the environment of apscheduler3.py. Arguments: PATHS INTERVAL."""

import os
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

record = os.open(os.environ["PEER_POKES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def poke(path: str) -> None:
    """Look for the file, and count the look."""
    os.write(record, b".")
    if os.path.exists(path):
        raise SystemExit(f"{path} came")


def main() -> None:
    """Run."""
    paths, interval = Path(sys.argv[1]).read_text().split(), float(sys.argv[2])
    scheduler = BackgroundScheduler(
        executors={"default": ThreadPoolExecutor(10)},
        job_defaults={"coalesce": True, "misfire_grace_time": None},
        timezone=UTC,
    )
    begin = datetime.now(UTC) + timedelta(seconds=2)
    for n, path in enumerate(paths):
        # a random phase, as if the sensors had begun to wait at different times
        first = begin + timedelta(seconds=interval * n / len(paths))
        scheduler.add_job(poke, "interval", seconds=interval, start_date=first, args=(path,))
    scheduler.start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
