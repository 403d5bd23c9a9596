"""A sensor for the answer of an HTTP server."""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from sensorpool.errors import InfraFailure
from sensorpool.sensors import arguments
from sensorpool.sensors.connections import PokeFailed, connection, shown_url, variable
from sensorpool.sensors.failures import BUSY_STATUSES

if TYPE_CHECKING:
    from sensorpool.sensors.http_client import Answer

METHODS = ("GET", "HEAD")
_SECRET_HEADER = re.compile(
    r"authorization|authentication|x-auth|cookie|token|secret|passw|credential|(api|access|private)[-_]?key",
    re.IGNORECASE,
)
# what frames a request on its connection, or turns a GET into another method
_OF_THE_CLIENT = re.compile(
    r"(proxy-)?connection|keep-alive|te|trailer|transfer-encoding|content-length|upgrade|expect|x-(http-)?method.*"
)
# what has a server, or a proxy before it, answer for another host or path
_OF_THE_CONNECTION = re.compile(r"host|x-host|forwarded|x-forwarded-.*|x-(original|rewrite)-.*")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*", re.ASCII)
_UNFIT_FOR_URLS = re.compile(r"[\x00-\x20\x7f\\]")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_MISSING = object()


class HttpSensor:
    """Holds when an HTTP server answers as asked.

    As with Airflow's HttpSensor, 404 means not yet, and any other status from 400 on is an error. But 429, 502, 503
    and 504 are infrastructure failures, and so is no answer. A status below 400 that is not the wanted one means
    not yet.

    A server that answers 429, or 403 or 503 with a ``Retry-After``, is left alone for as long as it asks.

    Up to 5 redirects are followed, unless one has the wanted status. The headers of a connection are not sent on to
    another server. Cookies are not kept. Proxies and certificates are those of the worker's environment
    (``HTTPS_PROXY``, ``NO_PROXY`` with names and with networks like ``10.0.0.0/8``, ``SSL_CERT_FILE``), as in
    Airflow. At most 1 MiB of a body is read, in its declared charset, which is UTF-8 by default.

    :param url: ``http://`` or ``https://``, without a password. With ``conn_id``, a path below its base URL, from
        ``/`` on.
    :param method: ``GET`` or ``HEAD``: a poke is repeated, so it must change nothing.
    :param status: the status to wait for. The default is any of 200 to 299.
    :param contains: text that the body must have in it.
    :param json_pointer: where in a JSON body to look (RFC 6901: ``/jobs/0/state``, empty for the whole):
        nothing there means not yet.
    :param json_value: what must be there, equal as JSON at every depth (1 is 1.0, and is not true). The default is
        anything but null, false, 0 and what is empty.
    :param headers: sent along. Secrets are refused, and so is ``Host`` beside a ``conn_id``: they belong to the
        connection.
    :param conn_id: names the connection: a base URL, with a user and a password if need be, or a JSON object
        ``{"base_url": …, "headers": {…}}``.
    :param timeout: seconds for the answer. Keep it below the service's limit for one poke.
    :param follow_redirects: without it, a redirect means not yet: a login page is no landing.
    :raises TypeError: when an argument is of the wrong type.
    :raises ValueError: when an argument says nothing that can be waited for.
    """

    __module__ = "sensorpool.sensors"  # one spelling of the class path, wherever the class is reached from
    poke_context_fields: ClassVar[tuple[str, ...]] = (
        *("url", "method", "status", "contains", "json_pointer", "json_value"),
        *("headers", "conn_id", "timeout", "follow_redirects"),
    )

    def __init__(
        self,
        url: str,
        *,
        method: str = "GET",
        status: int | None = None,
        contains: str | None = None,
        json_pointer: str | None = None,
        json_value: Any = None,
        headers: Mapping[str, str] | None = None,
        conn_id: str | None = None,
        timeout: float = 5.0,
        follow_redirects: bool = True,
    ) -> None:
        self.conn_id = None if conn_id is None else arguments.conn_id(conn_id)
        self.url = _check_url(url, has_connection=conn_id is not None)
        if method not in METHODS:
            raise ValueError(f"method is GET or HEAD (a poke must change nothing), not {str(method)[:20]!r}")
        self.method = method
        if status is not None and not 100 <= arguments.count("status", status, "an HTTP answer") <= 599:
            raise ValueError(f"status is an HTTP status from 100 to 599, not {status}")
        self.status = status
        if contains is not None and not (isinstance(contains, str) and contains):
            raise ValueError("contains is a text of at least one character")
        self.contains = contains
        if json_pointer is not None:
            _check_pointer(json_pointer)
        elif json_value is not None:
            raise ValueError("json_value needs json_pointer, which says where to look for it")
        self.json_pointer = json_pointer
        self.json_value = json_value
        if method == "HEAD" and self._asks_for_body:
            raise ValueError("method HEAD brings no body: use GET with contains and json_pointer")
        self.headers = None if headers is None else _check_headers(headers, has_connection=conn_id is not None)
        self.timeout = arguments.amount("timeout", timeout, "seconds")
        if not timeout:
            raise ValueError("timeout is a number of seconds above 0")
        if not isinstance(follow_redirects, bool):
            raise TypeError(f"follow_redirects is true or false, not {type(follow_redirects).__name__}")
        self.follow_redirects = follow_redirects

    @property
    def _asks_for_body(self) -> bool:
        return self.contains is not None or self.json_pointer is not None

    def poke(self, context: Any = None) -> bool:  # noqa: ARG002  # every sensor's poke takes one
        """Return whether the server answers as asked.

        :raises InfraFailure: when there is no answer, or 429, 502, 503 or 504.
        :raises PokeFailed: for another status from 400 on but 404, and for a body that is too long or no JSON.
        :raises SettingsError: when this worker does not know the connection.
        """
        from sensorpool.sensors.http_client import ask, base  # urllib3 takes 0.1 s to import

        url = self.url
        credentials: Mapping[str, str] = {}
        if self.conn_id is not None:
            found = base(variable(self.conn_id), connection(self.conn_id))
            url, credentials = found.url + self.url, found.headers
        answer = ask(
            self.method,
            url,
            headers=self.headers or {},
            credentials=credentials,
            timeout=self.timeout,
            wanted=self.status,
            follow_redirects=self.follow_redirects,
            body_if=self._is_wanted if self._asks_for_body else None,
        )
        if self._is_wanted(answer.status):
            return not self._asks_for_body or self._body_holds(answer, url)
        if answer.status == 404 or answer.status < 400:
            return False
        reason = f"{shown_url(url)} answered {answer.status} {answer.phrase}".rstrip()
        if answer.status in BUSY_STATUSES or (answer.status == 403 and "Retry-After" in answer.headers):
            raise InfraFailure(reason, response=answer)
        raise PokeFailed(reason)

    def _is_wanted(self, status: int) -> bool:
        return 200 <= status <= 299 if self.status is None else status == self.status

    def _body_holds(self, answer: "Answer", url: str) -> bool:
        body, charset = answer.body, answer.charset
        holds = self.contains is None or self.contains in body.decode(charset, "replace")
        if not answer.whole and (self.json_pointer is not None or not holds):
            raise PokeFailed(f"{shown_url(url)} answered with more than 1 MiB: ask for something shorter")
        if self.json_pointer is None or not holds:
            return holds
        try:
            # the kinds of UTF differ by their first bytes, which are right where a declaration may not be
            document = json.loads(body if charset.startswith("utf") else body.decode(charset))
        except (ValueError, RecursionError):
            raise PokeFailed(f"{shown_url(url)} answered with a body that is not JSON") from None
        value = _at(document, self.json_pointer)
        if value is _MISSING or self.json_value is None:
            return value is not _MISSING and bool(value)
        return _is_same(value, self.json_value)


def _check_url(value: object, *, has_connection: bool) -> str:
    url = arguments.text("url", value)
    if _UNFIT_FOR_URLS.search(url):
        raise ValueError("url has a space or a backslash in it: write %20 or %5C")
    if has_connection:
        # with a whole URL, a registration could send the connection's secrets to any server
        if not url.startswith("/") or url.startswith("//"):
            raise ValueError("url is a path from / on when there is a conn_id, which has the rest")
        if arguments.climbs(url):
            raise ValueError("url has .. in its path: it stays below the base URL of its conn_id")
        return url
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(f"url is malformed: {shown_url(url)}") from None
    if parts.scheme not in ("http", "https"):
        raise ValueError("url begins with http:// or https://, or with / when there is a conn_id")
    if not parts.hostname or port == 0:
        raise ValueError(f"url names no server: {shown_url(url)}")
    if "@" in parts.netloc:
        raise ValueError(f"url has a user in it: move it to a connection and name that ({shown_url(url)})")
    return url


def _check_headers(headers: object, *, has_connection: bool) -> dict[str, str]:
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers is an object of names and texts, not {type(headers).__name__}")
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"headers has {str(name)[:40]!r}, which is no name of a header")
        if _SECRET_HEADER.search(name):
            raise ValueError(f"headers has {name!r}, which may be secret: move it to a connection")
        plain = name.lower().replace("_", "-")  # to some servers the two are one
        if _OF_THE_CLIENT.fullmatch(plain):
            raise ValueError(f"headers has {name!r}, which is not the sensor's to choose: leave it out")
        if has_connection and _OF_THE_CONNECTION.fullmatch(plain):
            raise ValueError(f"headers has {name!r}, which can name another server: move it to the connection")
        if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"headers has no printable ASCII text for {name!r}")
    return dict(headers)


def _check_pointer(pointer: object) -> None:
    if not isinstance(pointer, str):
        raise TypeError(f"json_pointer is a string, not {type(pointer).__name__}")
    if (pointer and not pointer.startswith("/")) or re.search(r"~(?![01])", pointer):
        raise ValueError(f"json_pointer {pointer[:80]!r} is not one: write it like /jobs/0/state (RFC 6901)")


def _at(document: object, pointer: str) -> object:
    """Return the value at the JSON Pointer, or _MISSING."""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict):
            document = document.get(name, _MISSING)
        elif isinstance(document, list) and _INDEX.fullmatch(name) and int(name) < len(document):
            document = document[int(name)]
        else:
            return _MISSING
    return document


def _is_same(found: object, wanted: object) -> bool:
    """Whether two values are equal as JSON: to Python, True equals 1, at any depth."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(_is_same(found[name], wanted[name]) for name in found)
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(_is_same, found, wanted))
    return bool(found == wanted) and isinstance(found, bool) == isinstance(wanted, bool)
