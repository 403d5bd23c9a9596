"""``python -m sensorpool``."""

from sensorpool.cli import main

main(prog_name="sensorpool")
