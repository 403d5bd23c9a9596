"""The backend that a poke asks: a connection's name, or a server's address; else the class of its sensor stands for it.

A registration decides the name, so that no worker runs the code of a class for it. It is no part of the identity.
"""

import re

NO_BACKEND = "none"
LONGEST = 60  # characters
_CONNECTION = re.compile(r'"(?:[A-Za-z0-9_]*_)?conn_id":\s*"([A-Za-z0-9_.:@-]+)"')
# after a name and its password, if any; an @ further on may end a password that is spelt wrongly
_URL = re.compile(
    r"""":\s*"([a-z][a-z0-9+.-]*://)(?:[^/"?#\\]*@)?((?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::[0-9]+)?)(?=[/?#"])(?![^"]*@)"""
)
_PASSWORD = re.compile(r"(?<=://)[^/?#\s]*@")
_UNFIT = re.compile(r"[^!-~]+")  # what is not printable ASCII, and spaces


def backend_of(poke_context: str) -> str:
    """Return the name of the connection in a context, or else scheme and host of a URL in it; else `NO_BACKEND`.

    A password in a URL is left out.

    :param poke_context: JSON text.
    """
    if "conn_id" in poke_context and (found := _CONNECTION.search(poke_context)) is not None:
        return found[1][:LONGEST]
    if "://" in poke_context and (found := _URL.search(poke_context)) is not None:
        return (found[1] + found[2])[:LONGEST]
    return NO_BACKEND


def backend_named(value: object) -> str | None:
    """Return the name that a class gave to its backend, fit for logs, metrics and settings; None: it gave none.

    A password in a URL is left out, and so are spaces and what is not printable ASCII.
    """
    if not isinstance(value, str):
        return None
    name = _UNFIT.sub("", _PASSWORD.sub("", value[: 10 * LONGEST]))[:LONGEST]
    return name or None
