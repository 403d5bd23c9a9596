"""What the shop waits for."""

import os
from pathlib import Path

import sensorpool


@sensorpool.sensor
def delivered(partner: str, day: str) -> sensorpool.PokeReturnValue:
    """Whether a partner's delivery of a day is there; its path is the value for the next step."""
    path = Path(os.environ["SHOP_DELIVERIES"], f"{partner}-{day}.csv")
    return sensorpool.PokeReturnValue(path.is_file(), str(path))
