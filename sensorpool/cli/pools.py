"""The pool that a command inspects."""

from sensorpool.client.pool import Pool
from sensorpool.config.settings import Settings
from sensorpool.leases.state_file import take_up


def pool_to_look_at() -> Pool:
    """Return the pool of the environment, with the state file of a one-process service read in."""
    settings = Settings.load()
    take_up(settings)
    return Pool(settings)
