"""``python -m sensorpool``, and the ``sensorpool`` command."""

import atexit
import gc

from sensorpool.cli.main import main

_THRESHOLDS = 20_000, 20, 20  # of the garbage collector, as in a worker's child; Python's own are 700, 10, 10


def run() -> None:
    """Run the command of the command line, in a process of its own.

    Hardly anything that an import brings is garbage, and still the collector looks through all of it again and again,
    and once more at the end: a quarter of the CPU of a command that only looks.
    """
    gc.set_threshold(*_THRESHOLDS)
    atexit.register(gc.freeze)
    main(prog_name="sensorpool")


if __name__ == "__main__":
    run()
