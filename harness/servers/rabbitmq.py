"""RabbitMQ, from the system's packages."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import amqp

from .server import LOOPBACK, Missing, Server, free_port

# Not the scripts of /usr/sbin, which require root or the package's own user.
SCRIPTS = Path("/usr/lib/rabbitmq/bin")


class RabbitMqServer(Server):
    """A RabbitMQ server, with a port mapper (epmd) of its own: the machine's would listen beyond loopback."""

    not_ready: ClassVar[tuple[type[Exception], ...]] = (OSError, amqp.AMQPError)

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(settings)
        self._epmd_port, self._node_port = free_port(), free_port()
        self._node = f"sensorpool-{os.urandom(4).hex()}@localhost"

    @property
    def url(self) -> str:
        return f"amqp://sensorpool:{self.password}@{LOOPBACK}:{self.port}//"

    def locate(self) -> None:
        epmd = shutil.which("epmd")
        if not epmd or not (SCRIPTS / "rabbitmq-server").exists():
            raise Missing("no RabbitMQ: apt-get install rabbitmq-server, or name one in SENSORPOOL_TEST_AMQP_URL")
        self._epmd = epmd

    def environment(self) -> dict[str, str]:
        return {
            **super().environment(),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "ERL_EPMD_PORT": str(self._epmd_port),
            # For the server's node, and for the node of each command line tool.
            "ERL_AFLAGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder),
        }

    def command(self) -> list[str]:
        settings = {
            "listeners.tcp.1": f"{LOOPBACK}:{self.port}",
            "default_user": "sensorpool",
            "default_pass": self.password,
            "log.file": "false",
            "log.console": "true",
            **self.settings,
        }
        self.write("rabbitmq.conf", "".join(f"{name} = {value}\n" for name, value in settings.items()))
        return [str(SCRIPTS / "rabbitmq-server")]

    def spawn(self, *command: str) -> None:
        super().spawn(self._epmd, "-address", LOOPBACK, "-port", str(self._epmd_port))
        super().spawn(*command)

    def check(self) -> None:
        with amqp.Connection(f"{LOOPBACK}:{self.port}", userid="sensorpool", password=self.password, connect_timeout=5):
            pass

    def fresh_virtual_host(self, *options: str) -> str:
        """Make an empty virtual host, with options of ``rabbitmqctl add_vhost``, and return its URL."""
        name = f"test-{os.urandom(6).hex()}"
        tool = str(SCRIPTS / "rabbitmqctl")
        self.run(tool, "--quiet", "add_vhost", name, *options)
        self.run(tool, "--quiet", "set_permissions", "-p", name, "sensorpool", ".*", ".*", ".*")
        return f"{self.url.removesuffix('//')}/{name}"

    def drop_virtual_host(self, url: str) -> None:
        """Remove a virtual host with its contents."""
        self.run(str(SCRIPTS / "rabbitmqctl"), "--quiet", "delete_vhost", url.rpartition("/")[2])
