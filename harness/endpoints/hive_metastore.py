"""A Hive metastore's thrift endpoint on the loopback interface: as much of it as it takes to ask for partitions.

    with MetastoreEndpoint() as endpoint:
        endpoint.create_table("db", "table", "ds")
        ...  # endpoint.host, endpoint.port
        endpoint.add("db", "table", "ds=2026-01-01")
        assert endpoint.calls["get_partition_by_name"] == 1

The wire format, the names of the calls and the errors are those of the client library's generated code; what is raised
when follows Hive's own server. Every partition key is a string here, whatever the type that it is said to have.
"""

import operator
import re
import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self
from urllib.parse import quote, unquote

from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore
from hmsclient.genthrift.hive_metastore.ttypes import (
    FieldSchema,
    MetaException,
    NoSuchObjectException,
    Partition,
)
from hmsclient.genthrift.hive_metastore.ttypes import Table as ThriftTable
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

LOOPBACK = "127.0.0.1"
KEPT = "+,.@- !$&()<>|~"  # Hive escapes none of these in a partition's name
SERVED = frozenset({"get_partition_by_name", "get_partitions_by_filter", "get_partitions_by_names", "get_table"})

Spec = dict[str, str]  # a partition's keys and values, in the order of the table's keys
Condition = Callable[[Spec], bool]


class Table:
    """A table: its partition keys, and the partitions it has."""

    def __init__(self, keys: tuple[str, ...], key_type: str) -> None:
        self.keys = keys
        self.key_type = key_type
        self.partitions: dict[tuple[str, ...], Partition] = {}


class MetastoreEndpoint(ThriftHiveMetastore.Iface):  # type: ignore[misc]  # the generated code has no types
    """Answers for the partitions that a test adds, also while it runs, and counts the calls by name."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._tables: dict[tuple[str, str], Table] = {}
        self._lock = threading.Lock()
        self._listener = _Listener(_Processor(self))
        self._thread = threading.Thread(target=self._listener.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown()
        self._thread.join()
        self._listener.server_close()

    @property
    def host(self) -> str:
        return LOOPBACK

    @property
    def port(self) -> int:
        return int(self._listener.server_address[1])

    # What a test does

    def create_table(self, db: str, table: str, *keys: str, key_type: str = "string") -> None:
        """Make a table without partitions."""
        with self._lock:
            self._tables.setdefault(_names(db, table), Table(tuple(key.lower() for key in keys), key_type))

    def add(self, db: str, table: str, partition: str) -> None:
        """Add a partition, ``ds=2026-01-01`` or ``ds=2026-01-01/hour=7``, and its table if there is none."""
        spec = _spec(partition)
        self.create_table(db, table, *spec)
        now = int(time.time())
        with self._lock:
            found = self._tables[_names(db, table)]
            if tuple(spec) != found.keys:
                raise ValueError(f"{db}.{table} is partitioned by {', '.join(found.keys)}, not as {partition!r} is")
            values = tuple(spec.values())
            found.partitions[values] = Partition(
                values=list(values),
                dbName=db.lower(),
                tableName=table.lower(),
                createTime=now,
                lastAccessTime=0,
                parameters={},
            )

    # What a client calls

    def get_partition_by_name(self, db_name: str, tbl_name: str, part_name: str) -> Partition:
        """Return a partition; Hive has the same error for a table, a key and a partition that are not there."""
        with self._lock:
            table = self._table(db_name, tbl_name)
            spec = _spec(part_name)
            for key in table.keys:
                if key not in spec:
                    raise NoSuchObjectException(f"incomplete partition name - missing {key}")
            found = table.partitions.get(tuple(spec[key] for key in table.keys))
            if found is None:
                raise NoSuchObjectException(f"{db_name}.{tbl_name} partition ({part_name}) not found")
            return found

    def get_partitions_by_filter(self, db_name: str, tbl_name: str, filter: str, max_parts: int) -> list[Partition]:
        """Return the partitions that match an expression, of which there may be none."""
        with self._lock:
            table = self._table(db_name, tbl_name)
            holds = Filter(filter, table.keys).condition
            found = [
                partition
                for values, partition in sorted(table.partitions.items())
                if holds(dict(zip(table.keys, values, strict=True)))
            ]
            return found if max_parts < 0 else found[:max_parts]

    def get_table(self, dbname: str, tbl_name: str) -> ThriftTable:
        """Return a table: its names and its partition keys."""
        with self._lock:
            found = self._table(dbname, tbl_name)
            keys = [FieldSchema(name=key, type=found.key_type) for key in found.keys]
            return ThriftTable(dbName=dbname.lower(), tableName=tbl_name.lower(), partitionKeys=keys)

    def get_partitions_by_names(self, db_name: str, tbl_name: str, names: list[str]) -> list[Partition]:
        """Return those of the partitions that are there: by their names as they are kept, with the keys in order."""
        with self._lock:
            found = self._table(db_name, tbl_name)
            kept = {
                "/".join(
                    f"{key}={quote(value, safe=KEPT)}" for key, value in zip(found.keys, values, strict=True)
                ): each
                for values, each in found.partitions.items()
            }
            return [kept[name] for name in names if name in kept]

    def count(self, name: str) -> None:
        """Count a call."""
        with self._lock:
            self.calls[name] += 1

    def _table(self, db: str, table: str) -> Table:
        found = self._tables.get(_names(db, table))
        if found is None:
            raise NoSuchObjectException(f"{db}.{table} table not found")
        return found


class Filter:
    """A filter expression: comparisons with strings and dates, AND, OR and parentheses; no LIKE, IN and BETWEEN."""

    TOKEN = re.compile(
        r"""\s*(?: (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*") | (?P<date>\d{4}-\d\d-\d\d)
            | (?P<word>\w+) | (?P<operator><>|!=|<=|>=|[=<>]) | (?P<paren>[()]) )""",
        re.VERBOSE,
    )
    OPERATORS: dict[str, Callable[[str, str], bool]] = {  # noqa: RUF012
        "=": operator.eq,
        "!=": operator.ne,
        "<>": operator.ne,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
    }

    def __init__(self, text: str, keys: tuple[str, ...]) -> None:
        self._text = text
        self._keys = keys
        self._tokens = self._split(text.rstrip())
        if not self._tokens:
            self.condition: Condition = lambda _: True
            return
        self.condition = self._either()
        if self._tokens:
            raise self._error()

    def _split(self, text: str) -> list[tuple[str, str]]:
        tokens = []
        at = 0
        while at < len(text):
            match = self.TOKEN.match(text, at)
            if not match or not match.lastgroup:
                raise self._error()
            tokens.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()
        return tokens

    def _error(self) -> MetaException:
        return MetaException(f"Error parsing partition filter: {self._text}")

    def _take(self, *kinds: str) -> tuple[str, str]:
        if not self._tokens or self._tokens[0][0] not in kinds:
            raise self._error()
        return self._tokens.pop(0)

    def _took(self, word: str) -> bool:
        """Take a word or a parenthesis, if it comes next."""
        if self._tokens and self._tokens[0][0] in ("word", "paren") and self._tokens[0][1].upper() == word:
            self._tokens.pop(0)
            return True
        return False

    def _either(self) -> Condition:
        conditions = [self._both()]
        while self._took("OR"):
            conditions.append(self._both())
        return lambda spec: any(holds(spec) for holds in conditions)

    def _both(self) -> Condition:
        conditions = [self._one()]
        while self._took("AND"):
            conditions.append(self._one())
        return lambda spec: all(holds(spec) for holds in conditions)

    def _one(self) -> Condition:
        if self._took("("):
            condition = self._either()
            if not self._took(")"):
                raise self._error()
            return condition
        left = self._take("word", "string", "date")
        compare = self.OPERATORS[self._take("operator")[1]]
        right = self._take("word", "string", "date")
        if left[0] == "word":
            key = self._key(left)
            value = self._value(right)
            return lambda spec: compare(spec[key], value)
        key = self._key(right)
        value = self._value(left)
        return lambda spec: compare(value, spec[key])

    def _key(self, token: tuple[str, str]) -> str:
        kind, text = token
        if kind != "word":
            raise self._error()
        if text.lower() not in self._keys:
            raise MetaException(f"Specified key <{text}> is not a partitioning key for the table")
        return text.lower()

    def _value(self, token: tuple[str, str]) -> str:
        kind, text = token
        if kind == "word":
            raise self._error()
        return text[1:-1] if kind == "string" else text


class _Processor(ThriftHiveMetastore.Processor):  # type: ignore[misc]
    """The generated processor, less the calls that are not served: it says to those that it does not know them."""

    def __init__(self, endpoint: MetastoreEndpoint) -> None:
        super().__init__(endpoint)
        # The generated interface returns None for each of them, which some clients would take for success.
        self._processMap = {
            name: self._counted(name, process) for name, process in self._processMap.items() if name in SERVED
        }

    @staticmethod
    def _counted(name: str, process: Callable[..., Any]) -> Callable[..., Any]:
        def counted(self: Any, *arguments: Any) -> Any:
            self._handler.count(name)
            return process(self, *arguments)

        return counted


class _Listener(socketserver.ThreadingTCPServer):
    """Accepts connections, one thread for each; closes them when it is closed."""

    allow_reuse_address = True

    def __init__(self, processor: _Processor) -> None:
        self.processor = processor
        self.connections: set[socket.socket] = set()
        super().__init__((LOOPBACK, 0), _Connection)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # its thread sees the end of the stream, and ends
        super().server_close()


class _Connection(socketserver.BaseRequestHandler):
    """One client, from its first call to its last."""

    server: _Listener

    def handle(self) -> None:
        end = TSocket()
        end.setHandle(self.request)
        protocol = TBinaryProtocol(TBufferedTransport(end))
        # The hook connects once only to see whether a server answers, so an end without a call is usual.
        with suppress(TTransportException, ConnectionError):
            while True:
                self.server.processor.process(protocol, protocol)


def _names(db: str, table: str) -> tuple[str, str]:
    """Return how the metastore spells a table: in lower case."""
    return db.lower(), table.lower()


def _spec(partition: str) -> Spec:
    """Take a partition's name apart, as Hive does: what it escaped, like ``%3A``, comes back as it was."""
    parts = (part.partition("=") for part in partition.split("/"))
    return {unquote(key).lower(): unquote(value) for key, equals, value in parts if equals}
