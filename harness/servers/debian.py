"""Servers of Debian's packages, which have what those of the wheels lack: TLS, replication, PgBouncer."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import psycopg

from .certificates import Certificates
from .postgres import PostgresServer
from .redis import RedisServer
from .server import LOOPBACK, Missing, Server


class TlsRedisServer(RedisServer):
    """A Redis that takes connections by TLS only."""

    def __init__(self, certificates: Certificates, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(settings)
        self._certificates = certificates

    @property
    def url(self) -> str:
        return f"rediss://:{self.password}@{LOOPBACK}:{self.port}/0?ssl_ca_certs={self._certificates.authority}"

    def locate(self) -> None:
        found = shutil.which("redis-server")
        if not found:
            raise Missing("no Redis with TLS: apt-get install redis-server")
        self._binary = found

    def install(self) -> None:
        super().install()
        for name, file in (("server.pem", self._certificates.certificate), ("server.key", self._certificates.key)):
            self.write(name, file.read_text())

    def command(self) -> list[str]:
        settings = {
            **self.settings,
            "port": "0",
            "tls-port": str(self.port),
            "tls-cert-file": str(self.folder / "server.pem"),
            "tls-key-file": str(self.folder / "server.key"),
            "tls-auth-clients": "no",
            "tls-ca-cert-file": str(self.folder / "server.pem"),
            "dir": str(self.folder),
            "requirepass": self.password,
        }
        return [self._binary, str(self.write("redis.conf", "".join(f"{k} {v}\n" for k, v in settings.items())))]


class DebianPostgresServer(PostgresServer):
    """The newest PostgreSQL of Debian's packages.

    :param certificates: with them, it takes connections by TLS only.
    :param of: a running server; this one is its standby.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        certificates: Certificates | None = None,
        of: "DebianPostgresServer | None" = None,
    ) -> None:
        self._certificates, self._of = certificates, of
        super().__init__(settings)
        if of is not None:
            self.password = of.password

    @property
    def url(self) -> str:
        plain = super().url
        if self._certificates is None:
            return plain
        return f"{plain}?sslmode=verify-full&sslrootcert={self._certificates.authority}"

    def locate(self) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
        if not found:
            raise Missing("no PostgreSQL of Debian's: apt-get install postgresql")
        self._bin = found[-1].parent

    def install(self) -> None:
        if self._of is not None:
            self._copy_of(self._of)
            return
        self.make_data()
        kind = "host" if self._certificates is None else "hostssl"
        hosts = f"{kind} all all {LOOPBACK}/32 scram-sha-256\n{kind} replication all {LOOPBACK}/32 scram-sha-256\n"
        self.write("data/pg_hba.conf", hosts)
        if self._certificates is not None:
            self.write("server.pem", self._certificates.certificate.read_text())
            self.write("server.key", self._certificates.key.read_text())
            files = {"ssl_cert_file": "server.pem", "ssl_key_file": "server.key"}
            self.settings |= {"ssl": "on"} | {name: str(self.folder / value) for name, value in files.items()}

    def promote(self) -> None:
        """Make this standby the primary."""
        with psycopg.connect(self.url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")

    def _copy_of(self, primary: "DebianPostgresServer") -> None:
        where = f"host={LOOPBACK} port={primary.port} user=sensorpool password={primary.password}"
        self.run(
            self._binary("pg_basebackup"),
            "-D",
            str(self.folder / "data"),
            "-d",
            where,
            "-R",
            "--no-sync",
            "-X",
            "stream",
        )

    def _binary(self, name: str) -> str:
        return str(self._bin / name)


class PgBouncerServer(Server):
    """A PgBouncer in transaction mode before a PostgreSQL."""

    not_ready = (psycopg.OperationalError,)

    def __init__(self, behind: PostgresServer, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(settings)
        self._behind = behind
        self.password = behind.password

    @property
    def url(self) -> str:
        return self._behind.url.replace(f":{self._behind.port}/", f":{self.port}/")

    def locate(self) -> None:
        found = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
        if not found:
            raise Missing("no PgBouncer: apt-get install pgbouncer")
        self._binary = found

    def command(self) -> list[str]:
        settings = {
            "listen_addr": LOOPBACK,
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "scram-sha-256",
            "auth_file": str(self.write("users.txt", f'"sensorpool" "{self.password}"\n')),
            "pool_mode": "transaction",
            "max_client_conn": "200",
            "default_pool_size": "20",
            **self.settings,
        }
        lines = ["[databases]", f"* = host={LOOPBACK} port={self._behind.port}", "[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in settings.items()]
        return [self._binary, str(self.write("pgbouncer.ini", "\n".join(lines) + "\n"))]

    def check(self) -> None:
        psycopg.connect(self.url.replace("+psycopg", ""), connect_timeout=5, prepare_threshold=None).close()
