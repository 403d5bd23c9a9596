"""Checks of a URL before any server is asked."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

_REDIS = ("redis", "rediss")
_CERTIFICATE = {"required", "optional", "none"}
_AMQP_OPTIONS = {"connect_timeout", "failover_strategy", "heartbeat", "login_method"}


def has_scheme(url: str, *schemes: str) -> bool:
    """Whether a URL begins with one of these schemes."""
    return "://" in url and url.partition("://")[0].lower() in schemes


def each_broker(url: str) -> list[str]:
    """Return the URLs of several brokers one by one: kombu tries the next one when the first is away."""
    return re.split(r";(?=\w+://)", url)


def is_half_quoted(url: str) -> bool:
    """Whether a password most likely has an unquoted ``@``, ``/`` or ``#``: then a part of it is read as the host."""
    scheme, _, rest = url.partition("://")
    if scheme.startswith(("sqlite", "unix")):
        return False  # the URL has a path, and no host
    rest = rest.partition("?")[0]
    authority = rest.partition("/")[0].partition("#")[0]
    # for redis-py and kombu the password ends at the last @; for SQLAlchemy it does not
    most = 1 if scheme.startswith(("postgres", "mysql", "mariadb")) else authority.count("@")
    return rest.count("@") > most


def has_no_number(url: str) -> bool:
    """Whether a Redis URL names its database by something else than a number: redis-py reads that as 0."""
    if is_half_quoted(url) or has_odd_address(url) or not has_scheme(url, *_REDIS):
        return False
    database = urlsplit(url).path.strip("/")
    return bool(database) and not database.isdecimal()


def has_odd_address(url: str) -> bool:
    """Whether the port is none, or a bracket of an IPv6 address lacks its counterpart."""
    scheme, _, rest = url.partition("://")
    if scheme.startswith(("sqlite", "unix", "memory", "sentinel")) or is_half_quoted(url):
        return False
    authority = rest.partition(";")[0].partition("?")[0].partition("/")[0]
    try:
        return urlsplit(f"//{authority.rpartition('@')[2]}").port == 0
    except ValueError:
        return True


def is_in_memory(url: str) -> bool:
    """Whether a URL names an SQLite database in the memory of one process."""
    scheme, _, rest = url.partition("://")
    path, _, query = rest.partition("?")
    return scheme.startswith("sqlite") and (path in {"", "/", "/:memory:", "/file::memory:"} or "mode=memory" in query)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError(text)
    return int(text)


def _seconds(text: str) -> float:
    # at least 2: a worker waits one second at a time for a job
    if not 2 <= (seconds := float(text)) <= 10**9:
        raise ValueError(text)
    return seconds


def _switch(text: str) -> bool:
    return text.upper() not in {"0", "F", "FALSE", "N", "NO"}  # as redis-py reads it


def _certificate(text: str) -> str:
    if text not in _CERTIFICATE:
        raise ValueError(text)
    return text


# options that both the leases' client and Celery's have
_REDIS_OPTIONS: dict[str, Callable[[str], Any]] = {
    "client_name": str,
    "db": _number,
    "health_check_interval": _number,
    "protocol": _number,
    "retry_on_timeout": _switch,
    "socket_connect_timeout": _seconds,
    "socket_keepalive": _switch,
    "socket_timeout": _seconds,
}
URL_OPTIONS = frozenset(_REDIS_OPTIONS.keys() - {"db", "protocol"})
"""Options of a Redis URL that Celery's client does not read from the URL itself."""
_TLS_OPTIONS: dict[str, Callable[[str], Any]] = {
    "ssl_ca_certs": str,
    "ssl_ca_path": str,
    "ssl_cert_reqs": _certificate,
    "ssl_certfile": str,
    "ssl_check_hostname": str,
    "ssl_keyfile": str,
}


_SENTINEL_OPTIONS: dict[str, Callable[[str], Any]] = {
    "master_name": str,
    "sentinel_password": str,
    "sentinel_username": str,
}


def _options(url: str) -> list[tuple[str, str]]:
    return parse_qsl(url.partition("?")[2].partition("#")[0], keep_blank_values=True)


def _taken(url: str) -> dict[str, Callable[[str], Any]] | None:
    """Return which options a URL may have; None for a URL that is not Redis's."""
    if has_scheme(url, "rediss"):
        return _REDIS_OPTIONS | _TLS_OPTIONS
    if has_scheme(url, "redis"):
        return _REDIS_OPTIONS
    if has_scheme(url, "sentinel"):
        return {name: read for name, read in _REDIS_OPTIONS.items() if name != "db"} | _SENTINEL_OPTIONS
    if has_scheme(url, "unix"):
        return {name: read for name, read in _REDIS_OPTIONS.items() if name != "socket_keepalive"}
    return None


def odd_option(url: str) -> str:
    """Describe the first option of a Redis or broker URL that is unknown or has a wrong value; empty if none."""
    if is_half_quoted(url):
        return ""
    taken = _taken(url)
    for name, text in _options(url):
        shown = name if re.fullmatch("[A-Za-z_]{1,40}", name) else "without a name"  # may be a part of a password
        if taken is None:
            if has_scheme(url, "amqp", "amqps", "pyamqp") and not (name in _AMQP_OPTIONS or name.startswith("ssl_")):
                return f"the option {shown}, which is unknown: it may have {', '.join(sorted(_AMQP_OPTIONS))}, ssl_…"
        elif name not in taken:
            more = ", ssl_…" if taken.keys() >= _TLS_OPTIONS.keys() else ""
            known = ", ".join(sorted(taken.keys() - _TLS_OPTIONS.keys()))
            return f"the option {shown}, which its leases or Celery cannot have: it may have {known}{more}"
        else:
            try:
                taken[name](text)
            except ValueError:
                return f"the option {shown}, whose value is not valid"
    return ""


def redis_options(url: str) -> dict[str, Any]:
    """Return the options of a Redis URL that Celery's client does not read from the URL itself."""
    url = url.partition(";")[0]
    read = _taken(url) or {}
    return {name: read[name](text) for name, text in _options(url) if name in URL_OPTIONS & read.keys()}


def without_options(url: str) -> str:
    """Return a Redis URL in the form for Celery's client: the database's number in its path, and TLS options only."""
    base = url.partition("?")[0]
    options = dict(_options(url))
    if "db" in options and has_scheme(url, *_REDIS):
        scheme, _, rest = base.partition("://")
        base = f"{scheme}://{rest.partition('/')[0]}/{options['db']}"
    kept = {name: text for name, text in options.items() if name in _TLS_OPTIONS}
    return f"{base}?{urlencode(kept)}" if kept else base
