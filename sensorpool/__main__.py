"""``python -m sensorpool``, and the ``sensorpool`` command."""

import gc

from sensorpool.cli.main import main


def run() -> None:
    """Run the command of the command line, in a process of its own."""
    gc.set_threshold(
        20_000, 20, 20
    )  # hardly anything that an import brings is garbage, and each look goes through all of it
    main(prog_name="sensorpool")


if __name__ == "__main__":
    run()
