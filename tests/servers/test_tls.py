"""Redis, RabbitMQ and PostgreSQL by TLS, each with a certificate that is checked."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from harness.servers import Missing, RabbitMqServer, fresh_database
from harness.servers.certificates import Certificates, make_certificates
from harness.servers.debian import DebianPostgresServer, TlsRedisServer
from harness.servers.server import free_port
from sensorpool.store.migrate import upgrade
from tests.security.page import block
from tests.servers.conftest import Serve, lacking, whole_run


@pytest.fixture
def tls_redis(certificates: Certificates) -> Iterator[TlsRedisServer]:
    with ExitStack() as running:
        try:
            yield running.enter_context(TlsRedisServer(certificates))
        except Missing as missing:
            lacking(missing)


@pytest.fixture
def other_authority(tmp_path: Path) -> Certificates:
    (tmp_path / "other").mkdir()
    return make_certificates(tmp_path / "other")


def test_redis_by_tls_under_the_acl_of_the_page(
    serve: Serve, postgres_database: str, tls_redis: TlsRedisServer, certificates: Certificates, tmp_path: Path
) -> None:
    with redis.Redis.from_url(tls_redis.url, decode_responses=True) as admin:
        for line in block("Redis ACL").splitlines():
            if line.strip():
                admin.execute_command(*line.split())
    url = tls_redis.url.replace(f":{tls_redis.password}@", "sensorpool:change-me-redis@")
    service = serve(postgres_database, url)
    whole_run(service, tmp_path)


def test_a_redis_with_another_certificate_is_not_trusted(
    serve: Serve, postgres_database: str, tls_redis: TlsRedisServer, other_authority: Certificates
) -> None:
    url = f"{tls_redis.url.partition('?')[0]}?ssl_ca_certs={other_authority.authority}"
    done = serve(postgres_database, url).cli("health")
    assert done.returncode == 1
    assert "certificate" in done.stdout
    assert len(done.stderr.splitlines()) == 0


def test_rabbitmq_by_tls_with_quorum_queues(
    serve: Serve, postgres_database: str, redis_url: str, certificates: Certificates, tmp_path: Path
) -> None:
    port = free_port()
    settings = {
        "listeners.ssl.1": f"127.0.0.1:{port}",
        "ssl_options.cacertfile": str(certificates.authority),
        "ssl_options.certfile": str(certificates.certificate),
        "ssl_options.keyfile": str(certificates.key),
        "ssl_options.verify": "verify_none",
        "ssl_options.fail_if_no_peer_cert": "false",
    }
    for file in (tmp_path, *tmp_path.parents):
        if file != Path("/") and not file.stat().st_mode & 0o001:
            file.chmod(file.stat().st_mode | 0o011)  # the server may run as another user
    try:
        server = RabbitMqServer(settings)
    except Missing as missing:
        lacking(missing)
    with server:
        host = server.fresh_virtual_host("--default-queue-type", "quorum")
        url = host.replace("amqp://", "amqps://").replace(f":{server.port}/", f":{port}/")
        service = serve(postgres_database, redis_url, broker_url=url)
        service.environment["SSL_CERT_FILE"] = str(certificates.authority)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SSL_CERT_FILE", str(certificates.authority))
            whole_run(service, tmp_path)
            service.pool.close()


def test_postgres_by_tls(serve: Serve, redis_url: str, certificates: Certificates, tmp_path: Path) -> None:
    try:
        server = DebianPostgresServer(certificates=certificates)
    except Missing as missing:
        lacking(missing)
    with server, fresh_database(server) as url:
        assert "sslmode=verify-full" in url
        upgrade(url)
        whole_run(serve(url, redis_url), tmp_path)
        plain = serve(url.partition("?")[0] + "?sslmode=disable", redis_url).cli("health")
        assert plain.returncode == 1
        assert "no encryption" in plain.stdout
