"""MariaDB, from the system's packages."""

import shutil
from typing import ClassVar

import pymysql

from .server import LOOPBACK, Missing, Server


class MariaDbServer(Server):
    """A MariaDB server."""

    not_ready: ClassVar[tuple[type[Exception], ...]] = (pymysql.Error,)

    @property
    def url(self) -> str:
        return f"mysql+pymysql://sensorpool:{self.password}@{LOOPBACK}:{self.port}/mysql?charset=utf8mb4"

    def locate(self) -> None:
        path = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"
        server, installer = (shutil.which(name, path=path) for name in ("mariadbd", "mariadb-install-db"))
        if not server or not installer:
            raise Missing("no MariaDB: apt-get install mariadb-server, or name one in SENSORPOOL_TEST_MARIADB_URL")
        self._server, self._installer = server, installer

    def install(self) -> None:
        self.run(
            self._installer,
            "--no-defaults",
            f"--datadir={self.folder / 'data'}",
            "--auth-root-authentication-method=socket",  # no root without a password on the port
            "--skip-name-resolve",
            "--skip-test-db",
        )
        self.write(
            "init.sql",
            f"CREATE OR REPLACE USER sensorpool@'{LOOPBACK}' IDENTIFIED BY '{self.password}';\n"
            f"GRANT ALL ON *.* TO sensorpool@'{LOOPBACK}' WITH GRANT OPTION;\n",
        )

    def command(self) -> list[str]:
        return [
            self._server,
            "--no-defaults",
            f"--datadir={self.folder / 'data'}",
            f"--init-file={self.folder / 'init.sql'}",
            f"--bind-address={LOOPBACK}",
            f"--port={self.port}",
            "--socket=socket",  # in the data folder; a whole path may be too long for a socket
            "--skip-name-resolve",
            "--character-set-server=utf8mb4",
            # Commits reach the kernel, so a killed server keeps them, but not the disk.
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-buffer-pool-size=64M",
            *(f"--{name}={value}" for name, value in self.settings.items()),
        ]

    def check(self) -> None:
        pymysql.connect(
            host=LOOPBACK, port=self.port, user="sensorpool", password=self.password, connect_timeout=5
        ).close()
