"""``python -m sensorpool``, and the ``sensorpool`` command."""

import atexit
import gc
import sys

from sensorpool.cli.main import main


def run() -> None:
    """Run the command of the command line, in a process of its own.

    Hardly anything that an import brings is garbage, and still the collector looks through all of it again and again,
    and once more at the end: a quarter of the CPU of a command that only looks.
    """
    gc.set_threshold(20_000, 20, 20)
    atexit.register(_spare_the_last_look)
    main(prog_name="sensorpool")


def _spare_the_last_look() -> None:
    """Have the collector leave its look at the end out, unless it closes a file of SQLite, with those beside it."""
    if "sqlite3" not in sys.modules:
        gc.freeze()


if __name__ == "__main__":
    run()
