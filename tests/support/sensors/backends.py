"""Sensors that ask a backend which does as a file of their folder says: it answers, refuses, throttles, or hangs."""

import time
import zlib
from pathlib import Path
from typing import Any, ClassVar

from harness.scripted import LONG, ScriptedSensor
from sensorpool.errors import InfraFailure


class Throttled(Exception):
    """The error of a client of the backend."""

    __module__ = "httpx"

    def __init__(self, retry_after: str) -> None:
        super().__init__("429 Too Many Requests")
        self.status_code = 429
        self.headers = {"Retry-After": retry_after}


class Asks(ScriptedSensor):
    """Asks the backend of a connection.

    The file ``<conn_id>.does`` says what the backend does: ``answers`` (also without the file), ``refuses``, ``half``
    (refuses half of the groups), ``throttles SECONDS``, ``hangs``.
    """

    poke_context_fields: ClassVar[tuple[str, ...]] = ("folder", "name", "conn_id")

    def __init__(self, folder: str, name: str, conn_id: str) -> None:
        super().__init__(folder, name)
        self.conn_id = conn_id

    def poke(self, context: Any) -> Any:
        found = super().poke(context)
        said = Path(self.folder, f"{self.conn_id}.does")
        what, _, more = (said.read_text() if said.exists() else "answers").partition(" ")
        if what == "hangs":
            time.sleep(LONG)
        if what == "throttles":
            raise Throttled(more)
        if what == "refuses" or (what == "half" and zlib.crc32(self.name.encode()) % 2):
            raise ConnectionRefusedError(111, "Connection refused")
        return found


class NamesItsBackend:
    """Names its backend by itself; the name has a password in it, as a careless class might."""

    poke_context_fields: ClassVar[tuple[str, ...]] = ("region", "bucket")

    def __init__(self, region: str, bucket: str) -> None:
        self.region, self.bucket = region, bucket

    @staticmethod
    def backend_of(poke_context: dict[str, Any]) -> Any:
        """Return the name of the backend."""
        region = poke_context.pop("region")  # its own copy
        if region == "nowhere":
            raise LookupError("no such region")
        return None if region == "none" else f"s3://key:secret@{region}/ endpoint"

    def poke(self, context: Any) -> Any:
        raise InfraFailure(f"{self.bucket} cannot be asked")


def tell(folder: str | Path, conn_id: str, what: str) -> None:
    """Say what the backend of a connection does from now on."""
    said = Path(folder, f"{conn_id}.does.new")
    said.write_text(what)
    said.rename(Path(folder, f"{conn_id}.does"))
