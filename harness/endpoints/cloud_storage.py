"""Cloud Storage's JSON API on the loopback interface: as much of it as it takes to look for objects.

with StorageEndpoint() as endpoint:
    endpoint.objects["bucket"] = {"a/b"}
    ...  # the client finds it by STORAGE_EMULATOR_HOST=endpoint.address
    assert endpoint.calls == ["list"]
"""

from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from .json_server import JsonServer


class StorageEndpoint:
    """Answers for the objects that a test names, and notes the calls."""

    def __init__(self) -> None:
        self.objects: dict[str, set[str]] = {}
        self.calls: list[str] = []
        self._server = JsonServer(lambda path, _: self.answer(path))
        self.address = f"http://127.0.0.1:{self._server.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return status and body for a path: of an object, or of a bucket's list."""
        parts = urlsplit(path)
        _, _, rest = parts.path.partition("/b/")
        bucket, _, name = (unquote(each) for each in rest.partition("/o"))
        if bucket not in self.objects:
            return 404, {"error": {"code": 404, "message": "no such bucket"}}
        if not parts.path.endswith("/o") and not name:  # the client looks at the bucket itself, too
            self.calls.append("bucket")
            return 200, {"name": bucket}
        if name := name.removeprefix("/"):
            self.calls.append("get")
            there = name in self.objects[bucket]
            return (200, self._item(bucket, name)) if there else (404, {"error": {"code": 404}})
        self.calls.append("list")
        asked = {key: values[0] for key, values in parse_qs(parts.query).items()}
        return 200, self._page(bucket, asked)

    def _page(self, bucket: str, asked: dict[str, str]) -> dict[str, Any]:
        most, after = int(asked.get("maxResults", 1_000)), asked.get("pageToken", "")
        start, prefix, delimiter = asked.get("startOffset", ""), asked.get("prefix", ""), asked.get("delimiter")
        names = sorted(self.objects[bucket], key=str.encode)
        names = [name for name in names if name.startswith(prefix) and name.encode() >= start.encode() and name > after]
        prefixes = set[str]()
        if delimiter:
            below = [name for name in names if delimiter in name[len(prefix) :]]
            prefixes = {name[: name.index(delimiter, len(prefix)) + 1] for name in below}
            names = [name for name in names if name not in below]
        items = [self._item(bucket, name) for name in names[:most]]
        page: dict[str, Any] = {"kind": "storage#objects", "items": items, "prefixes": sorted(prefixes)}
        return page | ({"nextPageToken": names[most - 1]} if len(names) > most else {})

    def _item(self, bucket: str, name: str) -> dict[str, Any]:
        return {"name": name, "bucket": bucket, "size": "10", "updated": "2026-01-01T00:00:00.000Z"}
