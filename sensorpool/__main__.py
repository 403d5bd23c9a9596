"""``python -m sensorpool``, and the ``sensorpool`` command."""

import gc

from sensorpool.cli.main import main


def run() -> None:
    """Run the command of the command line, in a process of its own."""
    gc.set_threshold(20_000, 20, 20)  # imports bring hardly any garbage, and each look goes through all of them
    main(prog_name="sensorpool")


if __name__ == "__main__":
    run()
