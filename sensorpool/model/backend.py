"""The backend that a poke asks, as far as its context tells: a connection's name, or a server's address."""

import re

NO_BACKEND = "none"
_LONGEST = 60  # characters
_CONNECTION = re.compile(r'"(?:[A-Za-z0-9_]*_)?conn_id":\s*"([A-Za-z0-9_.:@-]+)"')
# after a name and its password, if any; an @ further on may end a password that is spelt wrongly
_URL = re.compile(
    r"""":\s*"([a-z][a-z0-9+.-]*://)(?:[^/"?#\\]*@)?((?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::[0-9]+)?)(?=[/?#"])(?![^"]*@)"""
)


def backend_of(poke_context: str) -> str:
    """Return the name of the connection in a context, or else scheme and host of a URL in it; else `NO_BACKEND`.

    A password in a URL is left out.

    :param poke_context: JSON text.
    """
    if "conn_id" in poke_context and (found := _CONNECTION.search(poke_context)) is not None:
        return found[1][:_LONGEST]
    if "://" in poke_context and (found := _URL.search(poke_context)) is not None:
        return (found[1] + found[2])[:_LONGEST]
    return NO_BACKEND
