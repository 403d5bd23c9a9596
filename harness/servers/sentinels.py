"""A Redis with a replica, and three Sentinels that watch them: a failover takes some seconds."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import redis

from harness.until import until

from .redis import RedisServer
from .server import LOOPBACK

NAME = "pool"
_PATIENCE = 2_000  # milliseconds without an answer after which a Redis counts as away


class SentinelServer(RedisServer):
    """A Sentinel, from the same program as Redis."""

    def __init__(self, primary: RedisServer, password: str) -> None:
        super().__init__()
        self._primary = primary
        self.password = password  # Sentinels ask each other with it

    def command(self) -> list[str]:
        lines = [
            f"port {self.port}",
            f"bind {LOOPBACK}",
            f"dir {self.folder}",
            f"requirepass {self.password}",
            f"sentinel monitor {NAME} {LOOPBACK} {self._primary.port} 2",
            f"sentinel auth-pass {NAME} {self._primary.password}",
            f"sentinel down-after-milliseconds {NAME} {_PATIENCE}",
            f"sentinel failover-timeout {NAME} 10000",
        ]
        file = self.folder / "sentinel.conf"  # a Sentinel writes into it what it has learnt
        if not file.exists():
            self.write(file.name, "\n".join(lines) + "\n")
        return [self._binary, str(file), "--sentinel"]


@dataclass
class Watched:
    """A Redis, its replica, and the Sentinels."""

    primary: RedisServer
    replica: RedisServer
    sentinels: list[SentinelServer]

    @property
    def url(self) -> str:
        """URL of whichever of the two is the primary now."""
        hosts = ",".join(f"{LOOPBACK}:{each.port}" for each in self.sentinels)
        login = f"&sentinel_password={self.sentinels[0].password}"
        return f"sentinel://:{self.primary.password}@{hosts}/0?master_name={NAME}{login}"

    def is_promoted(self) -> bool:
        """Whether the replica is the primary now."""
        return _role(self.replica) == "master"


@contextmanager
def watched_redis() -> Iterator[Watched]:
    """Yield a Redis with a replica that is up to date, and Sentinels that know both."""
    with ExitStack() as running:
        primary = running.enter_context(RedisServer())
        replica = RedisServer(
            {
                "replicaof": f"{LOOPBACK} {primary.port}",
                "masterauth": primary.password,
                "repl-diskless-sync": "yes",
                "repl-diskless-sync-delay": "0",
            }
        )
        replica.password = primary.password
        running.enter_context(replica)
        until("the replica", lambda: _info(replica).get("master_link_status") == "up")
        first = SentinelServer(primary, primary.password)
        sentinels = [first, *(SentinelServer(primary, primary.password) for _ in range(2))]
        for each in sentinels:
            running.enter_context(each)
        until("Sentinels that know each other", lambda: all(_knows(each) == (1, 2) for each in sentinels))
        yield Watched(primary, replica, sentinels)


def _role(server: RedisServer) -> str:
    return str(_info(server).get("role"))


def _info(server: RedisServer) -> dict[str, object]:
    with redis.Redis.from_url(server.url, socket_timeout=5) as client:
        return dict(client.info("replication"))


def _knows(sentinel: SentinelServer) -> tuple[int, int]:
    """Return how many replicas and other Sentinels a Sentinel knows."""
    with redis.Redis.from_url(sentinel.url, socket_timeout=5, decode_responses=True) as client:
        fields = client.execute_command("SENTINEL", "MASTER", NAME)
        told = fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))
        return int(told["num-slaves"]), int(told["num-other-sentinels"])
