"""The level of a worker's and of beat's log: that of Celery's command line, else that of our settings."""

import click
from click.core import ParameterSource


def names_log_level() -> bool:
    """Whether Celery alone decides on the level: its command has ``--loglevel``, or it runs without a command.

    Celery's own default, WARNING, is no choice of a user.
    """
    command = click.get_current_context(silent=True)
    return command is None or command.get_parameter_source("loglevel") is not ParameterSource.DEFAULT
