"""The pool that a command inspects."""

from sensorpool.client.pool_view import PoolView
from sensorpool.config.settings import Settings
from sensorpool.leases.standalone_files import take_up


def pool_to_look_at() -> PoolView:
    """Return the pool of the environment, with the state file of a one-process service read in."""
    return PoolView(settings_to_look_with())


def settings_to_look_with() -> Settings:
    """Return the settings of the environment, once the state file of a one-process service is read in."""
    settings = Settings.load()
    take_up(settings)
    return settings
