"""HttpSensor: what a context may not choose beside a connection; redirects, charsets, Retry-After and NO_PROXY."""

import json
from collections.abc import Callable

import pytest

from sensorpool.errors import InfraFailure
from sensorpool.poke.throttling import UNNAMED, quiet_for
from sensorpool.sensors import HttpSensor, http_client
from sensorpool.sensors.connections import PokeFailed, server_of
from sensorpool.sensors.http_client import proxy_of
from sensorpool.sensors.shared import Shared

from .serving import Server, answer

SetConnection = Callable[[str, str], None]
U = "http://127.0.0.1/"
PROXY = "http://proxy.invalid:3128"


@pytest.mark.parametrize(
    "path",
    [
        *("/..", "/../admin", "/a/../../admin", "/a/..", "/%2e%2e/admin", "/.%2E/admin", "/%252e%252e/admin"),
        *(
            "/..;/admin",
            "/..;a=b/admin",
            "/%2e%2e;/admin",
            "/..%2fadmin",
            "/a%2f..%2f..",
            "/..%5cadmin",
            "/..%255cadmin",
        ),
        *("/..?a=b", "/..#a", "//elsewhere.invalid/a", "//"),
    ],
)
def test_a_path_stays_below_the_base_url_of_its_connection(path: str) -> None:
    with pytest.raises(ValueError, match=r"url has \.\. in its path|url is a path from /"):
        HttpSensor(path, conn_id="api")


def test_dots_elsewhere_are_letters(server: Server, set_connection: SetConnection) -> None:
    set_connection("api", f"http://me:secret@127.0.0.1:{server.port}/api")
    paths = ("/a..b", "/...", "/v1..", "/a?next=/../b", "/a%2fb", "/a;b/c", "/%2e%2ehidden", "/")
    for path in paths:
        server.at[f"/api{path}".replace("%2f", "%2F").replace("%2e", "%2E")] = answer(200)
        assert HttpSensor(path, conn_id="api").poke({}), path
    assert all(asked[1].startswith("/api/") for asked in server.asked)


@pytest.mark.parametrize(
    "name",
    [
        *("Connection", "proxy-connection", "Keep-Alive", "TE", "Trailer", "Transfer-Encoding", "Content-Length"),
        *("Upgrade", "Expect", "Content_Length", "X-HTTP-Method-Override", "X-Method-Override"),
    ],
)
def test_a_header_that_frames_the_request_is_refused(name: str) -> None:
    for context in ({"url": U}, {"url": "/", "conn_id": "api"}):
        with pytest.raises(ValueError, match="leave it out"):
            HttpSensor(**context, headers={name: "5"})


@pytest.mark.parametrize(
    "name",
    ["Host", "HOST", "X-Host", "Forwarded", "X-Forwarded-Host", "X_Forwarded_Proto", "X-Original-URL", "X-Rewrite-URL"],
)
def test_a_header_that_names_a_server_goes_with_no_connection(server: Server, name: str) -> None:
    with pytest.raises(ValueError, match="move it to the connection"):
        HttpSensor("/", conn_id="api", headers={name: "other.invalid"})
    server.at["/"] = answer(200)
    assert HttpSensor(f"{server.url}/", headers={name: "other.invalid"}).poke({})
    assert server.asked[0][2][name.lower()] == "other.invalid"


def test_the_connection_itself_may_name_the_host(server: Server, set_connection: SetConnection) -> None:
    server.at["/"] = answer(200)
    set_connection("api", json.dumps({"base_url": server.url, "headers": {"Host": "other.invalid"}}))
    assert HttpSensor("/", conn_id="api").poke({})
    assert server.asked[0][2]["host"] == "other.invalid"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_that_is_not_followed_is_not_yet(server: Server, status: int) -> None:
    server.at["/report"] = answer(status, b"log in", Location="/login")
    server.at["/login"] = answer(200, b"log in")
    waiting = HttpSensor(f"{server.url}/report", follow_redirects=False)
    assert waiting.poke({}) is False
    assert [path for _, path, _ in server.asked] == ["/report"]
    assert HttpSensor(f"{server.url}/report").poke({}) is True
    assert HttpSensor(f"{server.url}/report", status=status, follow_redirects=False).poke({}) is True
    assert HttpSensor(f"{server.url}/report", status=status, contains="log in", follow_redirects=False).poke({}) is True
    server.at["/report"] = answer(200, b"the report")
    assert waiting.poke({}) is True


def test_follow_redirects_is_true_or_false() -> None:
    with pytest.raises(TypeError, match="follow_redirects is true or false"):
        HttpSensor(U, follow_redirects="no")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("charset", "encoding"),
    [
        ("", "utf-8"),
        ("", "utf-8-sig"),
        ("utf-8", "utf-8-sig"),
        ("", "utf-16"),
        ("utf-16", "utf-16"),
        ("utf-16", "utf-16-be"),
        ("UTF-16LE", "utf-16-le"),
        ("utf-8", "utf-16-le"),
        ("utf-32", "utf-32"),
        ("iso-8859-1", "iso-8859-1"),
        ("latin1", "latin-1"),
        ("windows-1252", "cp1252"),
        ("Shift_JIS", "shift_jis"),
        ("gb18030", "gb18030"),
        ("no-such-charset", "utf-8"),
    ],
)
def test_json_is_read_in_its_declared_charset(server: Server, charset: str, encoding: str) -> None:
    state = "完了" if encoding in ("shift_jis", "gb18030") else "grün"
    content_type = "application/json" + (f"; charset={charset}" if charset else "")
    body = json.dumps({"state": state}, ensure_ascii=False).encode(encoding)
    server.at["/"] = answer(200, body, Content_Type=content_type)
    assert HttpSensor(f"{server.url}/", json_pointer="/state", json_value=state).poke({}) is True


def test_json_that_is_not_in_its_declared_charset_is_an_error(server: Server) -> None:
    server.at["/"] = answer(200, '"grün"'.encode("iso-8859-1"), Content_Type="application/json; charset=utf-8")
    with pytest.raises(PokeFailed, match="not JSON"):
        HttpSensor(f"{server.url}/", json_pointer="").poke({})


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {"Retry-After": "60"}, 60.0),
        (429, {}, UNNAMED),
        (429, {"Retry-After": "soon"}, UNNAMED),
        (503, {"retry-after": "7"}, 7.0),
        (403, {"Retry-After": "8"}, 8.0),
        (503, {}, None),
        (502, {}, None),
    ],
)
def test_a_server_is_left_alone_as_it_asks(
    server: Server, status: int, headers: dict[str, str], seconds: float
) -> None:
    server.at["/"] = answer(status, **{name.replace("-", "_"): text for name, text in headers.items()})
    with pytest.raises(InfraFailure, match=f"answered {status}") as caught:
        HttpSensor(f"{server.url}/").poke({})
    assert quiet_for(caught.value) == seconds


@pytest.mark.parametrize("status", [400, 401, 500])
def test_an_error_stays_one_with_a_retry_after(server: Server, status: int) -> None:
    server.at["/"] = answer(status, Retry_After="9")
    with pytest.raises(PokeFailed, match=f"answered {status}"):
        HttpSensor(f"{server.url}/").poke({})


@pytest.mark.parametrize(
    ("no_proxy", "host", "port", "is_direct"),
    [
        ("10.0.0.0/8", "10.1.2.3", None, True),
        ("10.0.0.0/8", "10.1.2.3", 8080, True),
        ("10.0.0.0/8", "11.1.2.3", None, False),
        ("localhost, 10.0.0.0/8 ,.svc", "10.1.2.3", None, True),
        ("10.1.2.3/8", "10.200.0.1", None, True),
        ("10.0.0.0/8", "10.example.com", None, False),
        ("0.0.0.0/0", "8.8.8.8", None, True),
        ("10.0.0.0/99", "10.1.2.3", None, False),
        ("fd00::/8", "[fd12::1]", None, True),
        ("[fd00::]/8", "[fd12::1]", None, False),
        ("fd00::/8", "[fe80::1]", None, False),
        ("fd00::/8", "10.1.2.3", None, False),
        ("[::1]", "[::1]", None, True),
        ("0:0::1", "[::1]", 8080, True),
        ("[::1]:8080", "[::1]", 8080, True),
        ("10.1.2.3", "10.1.2.3", 8080, True),
        ("10.1.2.3:8080", "10.1.2.3", 8080, True),
        ("10.1.2.3:8080", "10.1.2.3", 8081, False),
        ("*", "10.1.2.3", None, True),
        ("*", "far.invalid", None, True),
        (".inside.invalid", "a.inside.invalid", None, True),
        ("inside.invalid", "a.inside.invalid", None, True),
        ("inside.invalid", "notinside.invalid", None, False),
        ("", "10.1.2.3", None, False),
        (",,", "10.1.2.3", None, False),
    ],
)
@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
def test_no_proxy(
    monkeypatch: pytest.MonkeyPatch, name: str, no_proxy: str, host: str, port: int | None, is_direct: bool
) -> None:
    for other in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv("HTTP_PROXY", PROXY)
    monkeypatch.setenv(name, no_proxy)
    url = f"http://{host}/" if port is None else f"http://{host}:{port}/"
    assert proxy_of(server_of(url)) == (None if is_direct else PROXY)


def test_a_server_in_a_network_of_no_proxy_is_asked_directly(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "_clients", Shared(1))
    monkeypatch.setenv("HTTP_PROXY", PROXY)
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8,127.0.0.0/8")
    server.at["/"] = answer(200)
    assert HttpSensor(f"{server.url}/").poke({}) is True
