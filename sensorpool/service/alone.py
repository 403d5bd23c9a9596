"""The lock of a pool whose leases are in the memory of one process: a second process would poke all groups again.

The process holds the lock of a file beside the SQLite file for as long as it lives. The kernel frees the lock when the
process ends, however it ends. A fork of the process does not have the lock.
"""

import errno
import fcntl
import os

from sensorpool.config.settings import Settings
from sensorpool.errors import SettingsError
from sensorpool.store.database import Database

_TAKEN = (errno.EACCES, errno.EAGAIN)


class Alone:
    """The lock of a pool that lives in one process. A pool with a Redis server takes no lock: it has leases.

    :raises SettingsError: when another process has the pool, or may have it: any host can reach a database server.
    :raises Unreachable: when the SQLite file cannot be opened.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self._file: int | None = None
        if not settings.embedded:
            return
        if database.engine.dialect.name != "sqlite":
            raise SettingsError(
                f"the database {database.where} may have other workers, which leases in this process's memory do not "
                "keep away: set SENSORPOOL_REDIS_URL to the pool's Redis (one process alone can have an SQLite file)"
            )
        if path := database.file():
            self._file = _locked(f"{path}.lock", database.where)

    def end(self) -> None:
        """Free the lock: another process may have the pool."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _locked(path: str, where: str) -> int:
    """Return a file descriptor, locked until it is closed. The file stays, because its removal would be a race."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SettingsError(f"the lock file {path} cannot be opened: {error.strerror}") from None
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        if error.errno in _TAKEN:
            said = f"another process runs the pool of the database {where}, with its leases in its own memory"
            raise SettingsError(f"{said}: end it first, or set SENSORPOOL_REDIS_URL for both") from None
        raise SettingsError(f"the file {path} cannot be locked: {error.strerror}") from None
    return file
