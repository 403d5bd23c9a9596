"""``python -m sensorpool``, and the ``sensorpool`` command."""

import gc

from sensorpool.cli.main import main
from sensorpool.instrumentation.garbage import SELDOM


def run() -> None:
    """Run the command of the command line, in a process of its own."""
    gc.set_threshold(*SELDOM)  # hardly anything that an import brings is garbage, and each look goes through all of it
    main(prog_name="sensorpool")


if __name__ == "__main__":
    run()
