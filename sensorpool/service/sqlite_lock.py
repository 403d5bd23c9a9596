"""The lock of a pool on an SQLite file: processes whose leases lie in different places would poke all groups twice.

The lock is that of a file beside the SQLite file. A process with its leases in its own memory holds it alone; processes
with a Redis share it. The kernel frees it when a process ends, however it ends. A fork of the process does not have it.
"""

import errno
import fcntl
import os

from sensorpool.config.settings import Settings
from sensorpool.errors import SettingsError
from sensorpool.store.database import Database

_TAKEN = (errno.EACCES, errno.EAGAIN)


class SqliteLock:
    """The lock of a process that pokes: exclusive if its leases are in its memory, shared if they are in Redis.

    :raises SettingsError: when a process with other leases has the pool, or may have it: any host can reach a database
        server.
    :raises Unreachable: when the SQLite file cannot be opened.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self._file: int | None = None
        is_sqlite = database.engine.dialect.name == "sqlite"
        if settings.embedded and not is_sqlite:
            raise SettingsError(
                f"the database {database.where} may have other workers, which leases in this process's memory do not "
                "keep away: set SENSORPOOL_REDIS_URL to the pool's Redis (one process alone can have an SQLite file)"
            )
        if is_sqlite and (path := database.file()):
            self._file = _locked(f"{path}.lock", database.where, fcntl.LOCK_EX if settings.embedded else fcntl.LOCK_SH)

    def end(self) -> None:
        """Free the lock: another process may have the pool."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _locked(path: str, where: str, way: int) -> int:
    """Return a file descriptor, locked until it is closed. The file stays, because its removal would be a race.

    :param way: exclusive or shared, as in `fcntl.lockf`.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SettingsError(f"the lock file {path} cannot be opened: {error.strerror}") from None
    try:
        fcntl.lockf(file, way | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        if error.errno in _TAKEN:
            said = (
                f"another process runs the pool of the database {where}, and its leases are not those of this process"
            )
            raise SettingsError(f"{said}: end it first, or set the same SENSORPOOL_REDIS_URL for both") from None
        raise SettingsError(f"the file {path} cannot be locked: {error.strerror}") from None
    return file
