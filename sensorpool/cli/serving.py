"""``sensorpool standalone``, ``web`` and ``db``."""

import secrets
import signal
import sys
from contextlib import suppress
from socket import gethostname

import click

from sensorpool.cli.output import json_option, print_json, say
from sensorpool.config import __version__
from sensorpool.config.settings import Settings
from sensorpool.errors import SensorpoolError, SettingsError, Unreachable
from sensorpool.instrumentation import alive, logs
from sensorpool.leases.standalone_files import StateFile
from sensorpool.store import migrate
from sensorpool.store.database import Database

_NOT_INSTALLED = "the pages need packages that are not here: install sensorpool with its extra `web`"


@click.command()
def standalone() -> None:
    """Run worker and beat in this one process.

    Its database is an SQLite file and its leases are in memory, unless the settings name others.
    """
    from sensorpool.service.runtime import Stopping
    from sensorpool.service.standalone import Standalone

    settings = Settings.load()
    logs.configure(settings.log_format, settings.log_level, settings.poke_log_level)
    stop = Stopping()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with Standalone(settings, stop) as pool:
        name = f"standalone@{gethostname()}"
        logs.name_process(name)
        with suppress(OSError):
            alive.begin(name)
            alive.keep()
        state = StateFile(settings) if settings.embedded else None
        say("sensorpool: ready", err=True)
        try:
            while not stop.wait(0.5):
                alive.come_round()
                if pool.is_over:
                    raise Unreachable("the worker of this process has ended, as its log says: start it again")
                if state is not None:
                    with suppress(OSError):  # a full disk: the pool goes on
                        state.write()
        finally:
            alive.end()
            if state is not None:
                state.remove()


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=5580, show_default=True, help="0: any free one.")
@click.option("--allow-actions", is_flag=True, help="Let readers poke now, cancel, hand back and release.")
def web(host: str, port: int, allow_actions: bool) -> None:
    """Serve the pages of a pool: what waits and why, what is late, what hurts.

    They are behind the token of SENSORPOOL_WEB_TOKEN; without one, a new token is made and printed.
    """
    try:
        from sensorpool.web import alone
        from sensorpool.web.alone import TokenAccess
    except ModuleNotFoundError as error:
        raise SettingsError(f"{_NOT_INSTALLED} (there is no {error.name})") from None
    from sensorpool.client.pool import Pool

    settings = Settings.load()
    token = settings.web_token or secrets.token_urlsafe(24)
    if not settings.web_token and host not in alone.LOOPBACK:
        raise SettingsError(f"--host {host} is open to other machines: set SENSORPOOL_WEB_TOKEN")
    pool = Pool.to_look_at(settings)
    listener = alone.listen(host, port)
    logs.configure(settings.log_format, settings.log_level, settings.poke_log_level)
    shown = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/"
    say(f"sensorpool: {shown}{'' if settings.web_token else f'?token={token}'}", err=True)
    alone.serve(pool, TokenAccess(token, may_act=allow_actions), listener)


@click.group()
def db() -> None:
    """Upgrade and check the database's schema."""


@db.command()
def upgrade() -> None:
    """Bring the schema up to date. A second run changes nothing."""
    settings = Settings.load()
    reached = migrate.upgrade(
        settings.database_url,
        schema=settings.database_schema,
        say=lambda line: say(f"sensorpool: {line}", err=True),
    )
    if reached != migrate.head():
        database = Database.of(settings)
        try:
            migrate.check(database, __version__)
        finally:
            database.dispose()
        reached += f", newer than this version's {migrate.head()}, which may use it: nothing was changed"
    say(f"the schema is {reached}")


@db.command()
@json_option
def restored(as_json: bool) -> None:
    """Say that the database was restored from a backup: a new epoch begins.

    Ids that were given since the backup are not given again, and what Redis has of that time is deleted. Stop all
    workers and beats first.
    """
    from sensorpool.admin.actions import begin_epoch
    from sensorpool.client.pool import Pool

    found = begin_epoch(Pool())
    if as_json:
        print_json(found._asdict())
    else:
        say(f"a new epoch has begun: {found.waiting} instances wait; {found.deleted} keys of Redis were deleted")


@db.command()
@json_option
def current(as_json: bool) -> None:
    """Show the schema's revision, and this version's. The exit code is 1 if the database has none."""
    settings = Settings.load()
    found = migrate.current(settings.database_url, schema=settings.database_schema)
    if as_json:
        print_json({"current": found, "head": migrate.head()})
    else:
        say(f"{found or 'none'} (this version: {migrate.head()})")
    sys.exit(0 if found else 1)


@db.command()
@json_option
def check(as_json: bool) -> None:
    """Say whether this version may use the schema. If not, say what mends it, and exit with 1."""
    settings = Settings.load()
    database = Database.of(settings)
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
        say("the schema is up to date")
    sys.exit(1 if problem else 0)
