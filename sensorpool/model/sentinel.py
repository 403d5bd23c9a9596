"""URLs of a Redis that Sentinels name: ``sentinel://:password@host:26379,host2:26379/0?master_name=pool``.

User, password and database are those of the Redis; ``sentinel_username`` and ``sentinel_password`` are for the
Sentinels.
"""

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote

SCHEME = "sentinel"
PORT = 26_379
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]@,/\s]+)(?::([0-9]{1,5}))?")
EXAMPLE = "sentinel://:password@host1:26379,host2:26379/0?master_name=NAME"


class SentinelUrl(NamedTuple):
    """What a URL names: the Sentinels, and the Redis that they tell the address of."""

    hosts: tuple[tuple[str, int], ...]
    username: str | None
    password: str | None
    database: int
    master_name: str
    sentinel_username: str | None
    sentinel_password: str | None

    def sentinel_options(self) -> dict[str, str]:
        """Return the login of the Sentinels themselves, by the names of redis-py."""
        named = {"username": self.sentinel_username, "password": self.sentinel_password}
        return {name: value for name, value in named.items() if value is not None}

    def each(self) -> list[str]:
        """Return a URL for each Sentinel, as kombu takes them."""
        login = ""
        if self.username is not None or self.password is not None:
            login = f"{quote(self.username or '', safe='')}:{quote(self.password or '', safe='')}@"
        return [
            f"{SCHEME}://{login}{f'[{host}]' if ':' in host else host}:{port}/{self.database}"
            for host, port in self.hosts
        ]


def is_sentinel(url: str) -> bool:
    """Whether a URL names Sentinels."""
    return url.partition("://")[0].lower() == SCHEME and "://" in url


def read(url: str) -> SentinelUrl:
    """Read a URL.

    :raises ValueError: with a part of a line, which says what is wrong; it has no password.
    """
    rest, _, query = url.partition("://")[2].partition("?")
    authority, _, database = rest.partition("/")
    login, _, hosts = authority.rpartition("@")
    username, _, password = login.partition(":")
    found: list[tuple[str, int]] = []
    for each in hosts.split(","):
        named = _HOST.fullmatch(each)
        if named is None or not 0 < int(named[2] or PORT) < 2**16:
            raise ValueError("a Sentinel that is no host with a port")
        found.append((named[1].strip("[]"), int(named[2] or PORT)))
    if not re.fullmatch("[0-9]{1,9}|", database.strip("/")):
        raise ValueError("no number of a Redis database behind its hosts")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if not options.get("master_name"):
        raise ValueError("no master_name, the name under which the Sentinels know the Redis")
    return SentinelUrl(
        hosts=tuple(found),
        username=unquote(username) or None,
        password=unquote(password) or None,
        database=int(database.strip("/") or 0),
        master_name=options["master_name"],
        sentinel_username=options.get("sentinel_username") or None,
        sentinel_password=options.get("sentinel_password") or None,
    )


def problem(url: str) -> str:
    """Return what is wrong with a URL that names Sentinels, as a part of a line; empty if nothing is."""
    if not is_sentinel(url):
        return ""
    try:
        read(url)
    except ValueError as error:
        return str(error)
    return ""
