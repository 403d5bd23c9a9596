"""``python -m sensorpool``, and the ``sensorpool`` command."""

import atexit
import gc

from sensorpool.cli.main import main

_YOUNG = 100_000  # objects until the garbage collector looks at them; Python's default is 700


def run() -> None:
    """Run the command of the command line, in a process of its own.

    Hardly anything that an import brings is garbage, and still the collector looks through all of it again and again,
    and once more at the end: a quarter of the CPU of a command that only looks.
    """
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)
    main(prog_name="sensorpool")


if __name__ == "__main__":
    run()
