"""A malformed class path or context is refused with one short line, always by `Refused`."""

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from sensorpool.errors import ClassRefused, Refused
from sensorpool.model.identity import MAX_CONTEXT_BYTES, canonical_classpath, canonical_context, parse_context


def _refusal(call: Callable[[Any], object], value: Any) -> str:
    with pytest.raises(Refused) as caught:
        call(value)
    message = str(caught.value)
    assert message == " ".join(message.split()), "one line"
    assert 10 < len(message) < 300
    return message


def _read(text: str) -> str:
    return canonical_context(parse_context(text))


def _nested_list(depth: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    return nested


def _nested_object(depth: int) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for _ in range(depth):
        nested = {"a": nested}
    return nested


def _self_containing_list() -> dict[str, Any]:
    wide: list[Any] = [1, 2]
    wide.extend([wide, wide])
    return {"a": wide}


def _self_containing_object() -> dict[str, Any]:
    context: dict[str, Any] = {}
    context["a"] = context
    return context


VALUES = {
    "nan": ({"a": float("nan")}, "nan"),
    "inf": ({"a": [float("inf")]}, "inf"),
    "minus inf": ({"a": {"b": float("-inf")}}, "-inf"),
    "nul": ({"a": "x\0y"}, "NUL"),
    "nul in a key": ({"x\0y": 1}, "NUL"),
    "surrogate": ({"a": ["\ud800"]}, "surrogate"),
    "surrogate in a key": ({"\udfff": 1}, "surrogate"),
    "1 MB": ({"a": "x" * 1_000_000}, "bytes"),
    "1 MB in a key": ({"x" * 1_000_000: 1}, "bytes"),
    "1 MB in pieces": ({"a": ["x" * 1_000] * 1_000}, "bytes"),
    "one byte too many": ({"a": "x" * (MAX_CONTEXT_BYTES - 7)}, "bytes"),
    "bytes, not characters": ({"a": "é" * (MAX_CONTEXT_BYTES // 2)}, "bytes"),
    "too many values": ({"a": [0] * 1_000_000}, "values"),
    "too many keys": ({str(n): n for n in range(200_000)}, ""),
    "depth of 33": (_nested_object(32), "deep"),
    "depth of 2,000": (_nested_object(2_000), "deep"),
    "depth of 100,000": ({"a": _nested_list(100_000)}, "deep"),
    "5,000 digits": ({"a": 10**5_000}, "64 bits"),
    "minus 5,000 digits": ({"a": -(10**5_000)}, "64 bits"),
    "65 bits": ({"a": 2**63}, "64 bits"),
    "65 bits below zero": ({"a": -(2**63) - 1}, "64 bits"),
    "number as a key": ({1: 2}, "key"),
    "none as a key": ({"a": {None: 2}}, "key"),
    "tuple as a key": ({(1, 2): 2}, "key"),
    "5,000 digits as a key": ({10**5_000: 1}, "key"),
    "escapes as a key": ({("\0" * 500,): 1}, "key"),
    "contains itself, list": (_self_containing_list(), "deep"),
    "contains itself, object": (_self_containing_object(), "deep"),
    "set": ({"a": {1, 2}}, "set"),
    "object": ({"a": object()}, "object"),
    "bytes": ({"a": b"x"}, "bytes"),
    "decimal": ({"a": Decimal(1)}, "Decimal"),
    "date": ({"a": datetime(2024, 1, 1)}, "datetime"),
    "class": ({"a": int}, "type"),
}


@pytest.mark.parametrize(("context", "word"), VALUES.values(), ids=VALUES)
def test_a_context_that_is_no_json_is_refused(context: Any, word: str) -> None:
    assert word in _refusal(canonical_context, context)


@pytest.mark.parametrize("context", [None, [], ["a"], "a", "{}", 1, 1.5, True, object, {1}, b"{}"], ids=repr)
def test_a_context_that_is_no_object_is_refused(context: Any) -> None:
    assert "JSON object" in _refusal(canonical_context, context)


TEXTS = {
    "nothing": ("", "JSON"),
    "cut short": ('{"a": 1', "JSON"),
    "no json": ("{a: 1}", "JSON"),
    "byte order mark": ("\ufeff{}", "JSON"),
    "more after it": ("{} {}", "JSON"),
    "array": ("[1]", "array"),
    "string": ('"a"', "string"),
    "number": ("1", "number"),
    "null": ("null", "null"),
    "boolean": ("true", "boolean"),
    "nan": ('{"a": NaN}', "NaN"),
    "infinity": ('{"a": [Infinity]}', "Infinity"),
    "minus infinity": ('{"a": -Infinity}', "-Infinity"),
    "too large a float": ('{"a": 1e999}', "inf"),
    "a key twice": ('{"a": 1, "a": 1}', "'a'"),
    "a nested key twice": ('{"a": [{"b": 1, "c": 2, "b": 3}]}', "'b'"),
    "a long key twice": (f'{{"{"k" * 5_000}": 1, "{"k" * 5_000}": 1}}', "twice"),
    "an escaped key twice": ('{"%s": 1, "%s": 1}' % (("\\u0001" * 500,) * 2), "twice"),
    "depth of 2,000": ('{"a":' + "[" * 2_000 + "]" * 2_000 + "}", "deep"),
    "depth of 100,000": ('{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "deep"),
    "5,000 digits": ('{"a": %s}' % ("9" * 5_000), "digits"),
    "escaped nul": ('{"a": "\\u0000"}', "NUL"),
    "escaped surrogate": ('{"a": "\\ud800"}', "surrogate"),
    "1 MB": ('{"a": "%s"}' % ("x" * 1_000_000), "bytes"),
}


@pytest.mark.parametrize(("text", "word"), TEXTS.values(), ids=TEXTS)
def test_a_text_that_is_no_context_is_refused(text: str, word: str) -> None:
    assert word in _refusal(_read, text)


PATHS = ["", "Class", ".Class", "pkg.", "pkg..Class", "pkg.mod::Class", "a:b:C", "pkg/mod.py", "1a.B", "a.B()", "a.é"]


@pytest.mark.parametrize(
    "path", [*PATHS, "a b.C", "a.B\nc", "a.B\0", "a." + "b" * 600, "\0" * 500, "\ud800.B", "__import__('os')"]
)
def test_a_class_path_that_is_none_is_refused(path: str) -> None:
    assert "is not a class path" in _refusal(canonical_classpath, path)


@pytest.mark.parametrize("path", [None, 1, b"a.B", ["a.B"], int])
def test_a_class_path_that_is_no_string_is_refused(path: Any) -> None:
    with pytest.raises(ClassRefused, match="a class path is a string"):
        canonical_classpath(path)
