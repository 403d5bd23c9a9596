"""The identity of a condition: one spelling of a class path and of a context, and the numbers that follow from them.

None of it depends on the process, the machine or the Python version. The original Smart Sensor used Python's salted
``hash()`` of unsorted JSON, so five interpreters gave five hashcodes for one condition.
"""

import hashlib
import json
import os
import re
import struct
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from sensorpool.errors import ClassRefused, Refused

MAX_CONTEXT_BYTES = 64 * 1024
MAX_CONTEXT_DEPTH = 32
MAX_CLASSPATH_LENGTH = 500


def _as_json(value: Any) -> Any:
    """Return what stands in JSON for a value of Python that has one meaning there."""
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        return int(seconds) if seconds.is_integer() else seconds
    if isinstance(value, datetime):
        return value.isoformat()
    return os.fspath(value) if isinstance(value, os.PathLike) else dict(value)  # other mappings are objects, too


_encoder = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_as_json
)
_NUMBERS = struct.Struct(">qI").unpack_from  # of a digest
_CLASSPATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)


class Identity(NamedTuple):
    """The identity of a condition.

    ``digest`` is 32 bytes, ``hashcode`` its first 64 bits as a signed integer, ``phase`` 31 of its later bits (they
    spread pokes over the interval, independently of the shard).
    """

    op_classpath: str
    poke_context: str
    digest: bytes
    hashcode: int
    phase: int


def canonical_classpath(op_classpath: object) -> str:
    """Return the one spelling of a class path: ``pkg.mod:Class`` and ``pkg.mod.Class`` are the same.

    :raises ClassRefused: when it is not a dotted path of identifiers.
    """
    if not isinstance(op_classpath, str):
        raise ClassRefused(f"a class path is a string like 'pkg.mod.Class', not {type(op_classpath).__name__}")
    return _spelled(op_classpath)


@lru_cache(maxsize=1_000)
def _spelled(op_classpath: str) -> str:
    spelled = op_classpath.strip().replace(":", ".", 1)
    if not _CLASSPATH.fullmatch(spelled) or len(spelled) > MAX_CLASSPATH_LENGTH:
        raise ClassRefused(f"{ascii(op_classpath)[:80]} is not a class path: write it as 'pkg.mod.Class'")
    return spelled


def canonical_context(poke_context: object) -> str:
    """Return the one JSON spelling of a poke_context: sorted keys, no spaces, UTF-8, at most 64 KB and 32 levels.

    A path is its text, a timedelta its seconds, a datetime with a time zone its ISO 8601 spelling.

    :raises Refused: for anything but a mapping with string keys and values that survive the round trip.
    """
    if not isinstance(poke_context, dict | Mapping):
        raise Refused(f"a poke_context is a JSON object, not {_json_name(poke_context)}")
    _check_values(poke_context)
    text = _encoder.encode(poke_context)
    if (size := len(text) if text.isascii() else len(text.encode())) > MAX_CONTEXT_BYTES:
        raise Refused(f"the poke_context has {size:,} bytes; {MAX_CONTEXT_BYTES:,} are allowed")
    return text


def parse_context(text: str) -> dict[str, Any]:
    """Read a poke_context from JSON text as a person writes it.

    :raises Refused: when it is no JSON object, names a key twice, or is nested too deeply to read.
    """
    try:
        context = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
    except RecursionError:
        raise Refused(f"the poke_context is nested deeper than {MAX_CONTEXT_DEPTH} levels") from None
    except Refused:
        raise
    except ValueError as error:
        raise Refused(f"""the poke_context is not JSON like '{{"path": "/data/x"}}': {str(error)[:120]}""") from None
    if not isinstance(context, dict):
        raise Refused(f"a poke_context is a JSON object, not {_json_name(context)}")
    return context


def identify(op_classpath: str, poke_context: object) -> Identity:
    """Compute the identity of a condition.

    :raises Refused: as `canonical_classpath` and `canonical_context` do.
    """
    classpath, context = canonical_classpath(op_classpath), canonical_context(poke_context)
    digest = hashlib.sha256(f"{classpath}\n{context}".encode()).digest()
    hashcode, later_bits = _NUMBERS(digest)
    return Identity(
        op_classpath=classpath,
        poke_context=context,
        digest=digest,
        hashcode=hashcode,
        phase=later_bits >> 1,
    )


def shardcode(hashcode: int, shard_code_upper_limit: int) -> int:
    """Return ``hashcode % shard_code_upper_limit``, never negative (AIP-17's rule)."""
    return hashcode % shard_code_upper_limit


def _check_values(context: Mapping[Any, Any]) -> None:
    """Refuse values that JSON or a database would change, drop or refuse. Iterative, so that depth costs nothing."""
    pending: list[tuple[object, int]] = [(context, 1)]
    seen = 0
    while pending:
        value, depth = pending.pop()
        seen += 1
        if depth > MAX_CONTEXT_DEPTH:
            raise Refused(f"the poke_context is nested deeper than {MAX_CONTEXT_DEPTH} levels")
        if seen > MAX_CONTEXT_BYTES:
            raise Refused(f"the poke_context has more than {MAX_CONTEXT_BYTES:,} values")
        if isinstance(value, str):
            _check_text(value)
        elif value is None or value is True or value is False:
            continue
        elif isinstance(value, int):
            if not -(2**63) <= value < 2**63:
                raise Refused("the poke_context has an integer of more than 64 bits: pass it as a string")
        elif isinstance(value, float):
            if value != value or value in (float("inf"), float("-inf")):
                raise Refused(f"the poke_context has {value}, which JSON cannot say")
        elif isinstance(value, dict | Mapping):  # dict first: its check is quick
            for key in value:
                if not isinstance(key, str):
                    raise Refused(f"the poke_context has a key of type {type(key).__name__}: keys are strings")
                _check_text(key)
            pending.extend((item, depth + 1) for item in value.values())
        elif isinstance(value, list | tuple):
            pending.extend((item, depth + 1) for item in value)
        elif isinstance(value, datetime) and value.tzinfo is None:
            raise Refused("the poke_context has a datetime without a time zone: give it one, like UTC")
        elif isinstance(value, os.PathLike) and isinstance(path := os.fspath(value), str):
            _check_text(path)
        elif not isinstance(value, timedelta | datetime):
            raise Refused(f"the poke_context has a value of type {type(value).__name__}, which is not JSON")


def _check_text(text: str) -> None:
    if len(text) > MAX_CONTEXT_BYTES:
        raise Refused(f"the poke_context has more than {MAX_CONTEXT_BYTES:,} bytes")
    if "\x00" in text:
        raise Refused("the poke_context has a NUL character")
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused("the poke_context has a lone surrogate, which UTF-8 cannot say") from None


def has_half_characters(value: object, text: str) -> bool:
    """Whether a value has lone surrogates: UTF-8 has none, and two side by side come back from JSON as another text.

    :param text: the value as JSON of ASCII characters only.
    """
    if "\\ud" not in text:
        return False
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object that names a key twice: it does not say which of the two is meant."""
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Refused(f"the poke_context names the key {ascii(twice)[:80]} twice")
    return result


def _refuse_constant(name: str) -> Any:
    raise Refused(f"the poke_context has {name}, which JSON cannot say")


def _json_name(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}
    return names.get(type(value), type(value).__name__)
