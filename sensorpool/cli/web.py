"""``sensorpool web``."""

from importlib import import_module

import click

from sensorpool.cli.output import say
from sensorpool.cli.pools import settings_to_look_with
from sensorpool.client.pool import Pool
from sensorpool.config.settings import Settings
from sensorpool.errors import SettingsError
from sensorpool.instrumentation import logs

_NOT_INSTALLED = "the pages need packages that are not here: install sensorpool with its extra `web`"


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=5580, show_default=True, help="0: any free one.")
@click.option("--allow-actions", is_flag=True, help="Let readers poke now, cancel, hand back and release.")
def web(host: str, port: int, allow_actions: bool) -> None:
    """Serve the pages of a pool: what waits and why, what is late, what hurts.

    They are behind the token of SENSORPOOL_WEB_TOKEN; without one, a new token is made and printed.
    """
    check_installed()
    from sensorpool.web import alone
    from sensorpool.web.token_access import TokenAccess, make_token

    settings = Settings.load()
    token = settings.web_token or make_token()
    if not settings.web_token and not alone.is_loopback(host):
        raise SettingsError(f"--host {host} is open to other machines: set SENSORPOOL_WEB_TOKEN")
    pool = Pool(settings_to_look_with())
    listener = alone.listen(host, port)
    logs.configure(settings.log_format, settings.log_level, settings.poke_log_level)
    shown = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/"
    say(f"sensorpool: {shown}{'' if settings.web_token else f'?token={token}'}", err=True)
    alone.serve(pool, TokenAccess(token, may_act=allow_actions), listener)


def check_installed() -> None:
    """Check that the packages of the pages are installed.

    :raises SettingsError: naming the first one that is not.
    """
    try:
        import_module("sensorpool.web.alone")
    except ModuleNotFoundError as error:
        raise SettingsError(f"{_NOT_INSTALLED} (there is no {error.name})") from None
