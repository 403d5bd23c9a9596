"""How an HTTP sensor reaches a server: by TLS, and by the proxies of the environment."""

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sensorpool.errors import CannotPoke, InfraFailure
from sensorpool.sensors import HttpSensor, http_client
from sensorpool.sensors.connections import server_of
from sensorpool.sensors.http_client import proxy_of
from sensorpool.sensors.shared import Shared

from .serving import Server, answer


@pytest.fixture(autouse=True)
def _reads_the_environment_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "_clients", Shared(1))
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def tls_server(server: Server, certificate: Path) -> Server:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server._listener.socket = context.wrap_socket(server._listener.socket, server_side=True)
    return server


@pytest.fixture(params=["http", "https"])
def tunnel(request: pytest.FixtureRequest, tls_server: Server, certificate: Path) -> Iterator[tuple[str, list[bytes]]]:
    """A proxy that leads all to the server, and what it was asked."""
    asked: list[bytes] = []
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)

    def serve(accepted: socket.socket) -> None:
        client = tls.wrap_socket(accepted, server_side=True) if request.param == "https" else accepted
        with client, socket.create_connection(("127.0.0.1", tls_server.port)) as server:
            asked.append(client.recv(65536))
            client.sendall(b"HTTP/1.1 200 Here you are\r\n\r\n")
            others = {client: server, server: client}
            while True:
                for source in select.select(list(others), [], [])[0]:
                    if not (piece := source.recv(65536)):
                        return
                    others[source].sendall(piece)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield f"{request.param}://me:p%40ss@localhost:{listening.getsockname()[1]}", asked


def test_trusts_the_certificates_of_the_file_and_keeps_the_connection(
    tls_server: Server, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    tls_server.at["/"] = answer(200, b"ready")
    sensor = HttpSensor(f"https://localhost:{tls_server.port}/", contains="ready")
    for _ in range(3):
        assert sensor.poke({})
    assert tls_server.connections == 1


@pytest.mark.parametrize(("name", "is_trusted"), [("localhost", False), ("127.0.0.1", True)])
def test_trusts_no_other_certificate_and_no_other_name(
    tls_server: Server, certificate: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_trusted: bool
) -> None:
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with pytest.raises(InfraFailure, match="CERTIFICATE_VERIFY_FAILED"):
        HttpSensor(f"https://{name}:{tls_server.port}/").poke({})
    assert not tls_server.asked


def test_asks_by_a_tunnel(
    tunnel: tuple[str, list[bytes]], tls_server: Server, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv("HTTPS_PROXY", tunnel[0])
    tls_server.at["/a"] = answer(200)
    for _ in range(2):
        assert HttpSensor("https://far.invalid/a").poke({})
    assert len(tunnel[1]) == 1
    for asked in tunnel[1]:
        assert asked.startswith(b"CONNECT far.invalid:443 ")
        assert b"proxy-authorization: basic bwu6cebzcw==" in asked.lower()
    assert "proxy-authorization" not in tls_server.asked[0][2]


def test_asks_by_the_proxy_of_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://me:p%40ss@127.0.0.1:{server.port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,.inside.invalid")
    server.at["http://far.invalid/a?b=c"] = answer(200)
    server.at["/"] = answer(200)
    for _ in range(2):
        assert HttpSensor("http://far.invalid/a?b=c").poke({})
    assert server.connections == 1
    assert server.asked[-1][2]["host"] == "far.invalid"
    assert server.asked[-1][2]["proxy-authorization"] == "Basic bWU6cEBzcw=="
    assert HttpSensor(f"{server.url}/").poke({}), "not by the proxy"
    with pytest.raises(InfraFailure, match="NameResolutionError"):
        HttpSensor("http://a.inside.invalid/").poke({})


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_a_port_may_be_asked_without_the_proxy(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:3128")
    monkeypatch.setenv("NO_PROXY", f"{address}:8080")
    assert proxy_of(server_of(f"http://{address}:8080/")) is None
    assert proxy_of(server_of(f"http://{address}:8081/")) == "http://proxy.invalid:3128"
    assert proxy_of(server_of(f"http://{address}/")) == "http://proxy.invalid:3128"


def test_a_proxy_that_gives_no_tunnel_is_an_infra_failure(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"127.0.0.1:{server.port}")
    with pytest.raises(InfraFailure, match=r"ProxyError|Tunnel"):
        HttpSensor("https://far.invalid/").poke({})


def test_a_certificate_file_that_is_not_there_is_the_workers_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/certificates.pem")
    with pytest.raises(CannotPoke, match="this worker cannot speak HTTP"):
        HttpSensor("https://127.0.0.1:9/").poke({})
