"""Forms that only our own pages can send: a forged request of another site is refused.

Each form has the value of a cookie that other sites can neither read nor set, and a browser names where a form is from.
"""

import hmac
import secrets
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from sensorpool.web.access import Denied

COOKIE = "sensorpool_form"
FIELD = "form_token"
_LENGTH = 43  # characters of the value


def value_of(request: Request) -> str:
    """Return the value for the forms of a page: the cookie's, or a new one."""
    kept = request.cookies.get(COOKIE, "")
    return kept if len(kept) == _LENGTH and kept.isascii() else secrets.token_urlsafe(32)


def keep(request: Request, response: Response, value: str) -> None:
    """Keep the value in the browser, if it is new."""
    if request.cookies.get(COOKIE) != value:
        is_secure = request.url.scheme == "https"
        path = request.scope.get("root_path") or "/"
        response.set_cookie(COOKIE, value, httponly=True, samesite="strict", secure=is_secure, path=path)


def check(request: Request, given: str) -> None:
    """Check that a form comes from one of our pages.

    :raises Denied: when it does not.
    """
    kept = request.cookies.get(COOKIE, "")
    if not kept or not hmac.compare_digest(kept.encode(), given.encode(errors="replace")):
        raise Denied("the form is not from this page: load the page again, and allow it cookies")
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:  # a browser's own word; it holds behind a proxy that changes the host's name, too
        is_ours = site in {"same-origin", "none"}
    else:
        is_ours = origin is None or _place(origin) == request.headers.get("host")
    if not is_ours:
        raise Denied("the form comes from another site")


def _place(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
