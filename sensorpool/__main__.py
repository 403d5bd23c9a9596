"""``python -m sensorpool``."""

from sensorpool.cli.main import main

main(prog_name="sensorpool")
