"""Access by one secret: the token of `sensorpool web`, as a password, as a bearer token, or kept in a cookie."""

import base64
import hmac
from hashlib import sha256

from starlette.requests import Request

from sensorpool.instrumentation.logs import logger
from sensorpool.web.access import Denied, Reader

COOKIE = "sensorpool_login"
_CHALLENGE = 'Basic realm="sensorpool", charset="UTF-8"'
_LONGEST = 4_096  # characters of a header
_LONGEST_NAME = 100

log = logger(__name__)


class TokenAccess:
    """Lets in who knows the token, to all pages.

    :param may_act: whether readers may also do something, and not only look.
    """

    def __init__(self, token: str, *, may_act: bool) -> None:
        self._token = token.encode()
        self._may_act = may_act

    @property
    def cookie(self) -> str:
        """The value of the cookie of who has logged in: it tells nothing of the token."""
        return hmac.new(self._token, b"sensorpool login", sha256).hexdigest()

    def is_token(self, text: str) -> bool:
        """Whether a text is the token, in a time that tells nothing of how much of it is right."""
        return hmac.compare_digest(text.encode(errors="replace"), self._token)

    def reader(self, request: Request) -> Reader:
        """Return who asks: the user name of a basic login, else ``token``.

        :raises Denied: when the token is missing or wrong.
        """
        name = self._name(request.headers.get("authorization", ""))
        if name is None and hmac.compare_digest(request.cookies.get(COOKIE, "").encode(), self.cookie.encode()):
            name = "token"
        if name is None:
            if "authorization" in request.headers:
                note_failed_login(request)
            raise Denied("log in with the token: any user name, and the token as the password", 401, _CHALLENGE)
        changed = None if self._may_act else ()
        return Reader(name, changed=changed, operates=self._may_act, watches=True, oversees=True)

    def _name(self, header: str) -> str | None:
        user, token = given_in(header)
        return user[:_LONGEST_NAME] or "token" if self.is_token(token) else None


def given_in(header: str) -> tuple[str, str]:
    """Return the user and the token of an ``Authorization`` header: a bearer token has no user; empty: it has none."""
    kind, _, given = header[:_LONGEST].partition(" ")
    if kind.lower() == "bearer":
        return "", given.strip()
    if kind.lower() == "basic":
        try:
            user, _, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
        except ValueError:
            return "", ""
        return user, password
    return "", ""


def note_failed_login(request: Request) -> None:
    """Log a failed login, with the address that it came from."""
    client = request.client.host if request.client else "?"
    log.warning("a login failed: its token is wrong", client=client, path=request.url.path)
