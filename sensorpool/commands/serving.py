"""``sensorpool standalone`` and ``db``."""

import signal
import sys
import threading

import click

from sensorpool import __version__, logs, migrate
from sensorpool.commands.output import json_option, print_json, say
from sensorpool.errors import SensorpoolError, Unreachable
from sensorpool.settings import Settings
from sensorpool.store.database import Database


@click.command()
def standalone() -> None:
    """Run everything in this process: worker and beat, on SQLite and in-process leases unless told otherwise."""
    from sensorpool.standalone import Standalone

    settings = Settings.load()
    logs.configure(settings.log_format, settings.log_level)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with Standalone(settings) as pool:
        click.echo("sensorpool: ready", err=True)
        while not stop.wait(1.0):
            if pool.is_over:
                raise Unreachable("the worker of this process has ended, as its log says: start it again")


@click.group()
def db() -> None:
    """Look after the database's schema."""


@db.command()
@click.option("--revision", default="head", show_default=True)
def upgrade(revision: str) -> None:
    """Bring the schema up to date. Again, it changes nothing."""
    settings = Settings.load()
    reached = migrate.upgrade(settings.database_url, revision, schema=settings.database_schema)
    click.echo(f"the schema is {reached}")


@db.command()
@json_option
def current(as_json: bool) -> None:
    """Show the schema's revision, and the one that this version brings. 1 when there is none."""
    settings = Settings.load()
    found = migrate.current(settings.database_url, schema=settings.database_schema)
    if as_json:
        print_json({"current": found, "head": migrate.head()})
    else:
        click.echo(f"{found or 'none'} (this version: {migrate.head()})")
    sys.exit(0 if found else 1)


@db.command()
@json_option
def check(as_json: bool) -> None:
    """Say whether this version may use the schema. 1, and what mends it, when not."""
    settings = Settings.load()
    database = Database(settings.database_url, schema=settings.database_schema)
    try:
        migrate.check(database, __version__)
        problem = None
    except SensorpoolError as error:
        problem = str(error)
    if as_json:
        print_json({"usable": problem is None, "problem": problem})
    elif problem:
        say(f"sensorpool: {problem}", err=True)
    else:
        click.echo("the schema is up to date")
    sys.exit(1 if problem else 0)
