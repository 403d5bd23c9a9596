"""What can be wrong with a URL before any server is asked."""

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


def is_half_quoted(url: str) -> bool:
    """Whether a password most likely has an ``@``, ``/`` or ``#`` that is not quoted: then a part of it is the host."""
    scheme, _, rest = url.partition("://")
    if scheme.startswith(("sqlite", "unix")):
        return False  # paths
    rest = rest.partition("?")[0]
    authority = rest.partition("/")[0].partition("#")[0]
    # redis-py and kombu take all up to the last @ for the password; SQLAlchemy does not
    most = 1 if scheme.startswith(("postgres", "mysql", "mariadb")) else authority.count("@")
    return rest.count("@") > most


def has_no_number(url: str) -> bool:
    """Whether a Redis URL names a database by something else than its number: redis-py takes that for 0."""
    if is_half_quoted(url) or has_odd_host(url) or not has_scheme(url, *_REDIS):
        return False
    database = urlsplit(url).path.strip("/")
    return bool(database) and not database.isdecimal()


def has_odd_port(url: str) -> bool:
    """Whether what stands where the port does is none."""
    scheme, _, rest = url.partition("://")
    if scheme.startswith(("sqlite", "unix", "memory")) or is_half_quoted(url):
        return False
    authority = rest.partition(";")[0].partition("?")[0].partition("/")[0]
    host = authority.rpartition("@")[2]
    port = host.rpartition("]")[2].partition(":")[2]
    return bool(port) and not (port.isdecimal() and port.isascii() and 0 < int(port[:6]) < 2**16)


def has_odd_host(url: str) -> bool:
    """Whether a bracket of an IPv6 address is not closed, or was not opened."""
    scheme, _, rest = url.partition("://")
    authority = rest.partition(";")[0].partition("?")[0].partition("/")[0]
    host = authority.rpartition("@")[2]
    return not scheme.startswith(("sqlite", "unix")) and ("[" in host) != ("]" in host)


def is_in_memory(url: str) -> bool:
    """Whether a database is SQLite's in the memory of one process."""
    scheme, _, rest = url.partition("://")
    path, _, query = rest.partition("?")
    return scheme.startswith("sqlite") and (path in {"", "/", "/:memory:", "/file::memory:"} or "mode=memory" in query)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError(text)
    return int(text)


def _seconds(text: str) -> float:
    # a worker waits for a second at a time until a job comes
    if not 2 <= (found := float(text)) <= 10**9:
        raise ValueError(text)
    return found


def _switch(text: str) -> bool:
    return text.upper() not in {"0", "F", "FALSE", "N", "NO"}  # as redis-py reads it


def _certificate(text: str) -> str:
    if text not in _CERTIFICATE:
        raise ValueError(text)
    return text


# what the leases' client and Celery's both can do
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
_TLS_OPTIONS: dict[str, Callable[[str], Any]] = {
    "ssl_ca_certs": str,
    "ssl_ca_path": str,
    "ssl_cert_reqs": _certificate,
    "ssl_certfile": str,
    "ssl_check_hostname": str,
    "ssl_keyfile": str,
}


def _options(url: str) -> list[tuple[str, str]]:
    return parse_qsl(url.partition("?")[2].partition("#")[0], keep_blank_values=True)


def _taken(url: str) -> dict[str, Callable[[str], Any]] | None:
    """Return which options a URL may have; None, if that is not for us to say."""
    if has_scheme(url, "rediss"):
        return _REDIS_OPTIONS | _TLS_OPTIONS
    if has_scheme(url, "redis"):
        return _REDIS_OPTIONS
    if has_scheme(url, "unix"):
        return {name: read for name, read in _REDIS_OPTIONS.items() if name != "socket_keepalive"}
    return None


def odd_option(url: str) -> str:
    """Say which option of the URL of a Redis or broker is none, or has no value of its kind; empty, if all are well."""
    if is_half_quoted(url):
        return ""
    if ";" in url:  # Celery's client takes several
        return next(filter(None, map(odd_option, url.split(";"))), "")
    taken = _taken(url)
    for name, text in _options(url):
        shown = name if re.fullmatch("[A-Za-z_]{1,40}", name) else "without a name"  # it may be a part of a password
        if taken is None:
            if has_scheme(url, "amqp", "amqps", "pyamqp") and not (name in _AMQP_OPTIONS or name.startswith("ssl_")):
                return f"the option {shown}, which is none: it may have {', '.join(sorted(_AMQP_OPTIONS))}, ssl_…"
        elif name not in taken:
            more = ", ssl_…" if taken.keys() >= _TLS_OPTIONS.keys() else ""
            known = ", ".join(sorted(taken.keys() - _TLS_OPTIONS.keys()))
            return f"the option {shown}, which its leases or Celery cannot have: it may have {known}{more}"
        else:
            try:
                taken[name](text)
            except ValueError:
                return f"the option {shown} with a value that cannot be"
    return ""


def redis_options(url: str) -> dict[str, Any]:
    """Return the options of a Redis URL that Celery's client has to be told apart from the URL."""
    url = url.partition(";")[0]
    read = _taken(url) or {}
    apart = _REDIS_OPTIONS.keys() - {"db", "protocol"}
    return {name: read[name](text) for name, text in _options(url) if name in apart & read.keys()}


def without_options(url: str) -> str:
    """Return a Redis URL as Celery's client reads it: the number of the database in its path, no options but TLS's."""
    base = url.partition("?")[0]
    options = dict(_options(url))
    if "db" in options and has_scheme(url, *_REDIS):
        scheme, _, rest = base.partition("://")
        base = f"{scheme}://{rest.partition('/')[0]}/{options['db']}"
    kept = {name: text for name, text in options.items() if name in _TLS_OPTIONS}
    return f"{base}?{urlencode(kept)}" if kept else base
