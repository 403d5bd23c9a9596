"""What may be shown: no secret, and nothing that a terminal or a log takes for more than text."""

import json
import os
import re
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

SHORTEST = 6  # characters: hiding every "1" of a line would hide the line
_LONGEST_LINE = 500  # characters
_COMMON = frozenset({"sensorpool", "postgres", "postgresql", "redis", "airflow", "celery", "worker", "localhost"})
_OURS = re.compile(r"SENSORPOOL_(CONN_\w+|\w+_URL)")

# Every pattern takes time that grows with the text, not with its square: the text is anybody's, and all threads wait.
_URL = re.compile(r"""://[^\s"'<>]*""")
_PASSWORD = re.compile(r"(://[^/@:]*:).*")
_QUERY = re.compile(
    r"""(?i)([?&;](?=[^=&?;\s]*(?:pass|secret|token|key))[^=&?;\s]*=)[^&\s"'<>]*""",
)
_NAMED = re.compile(
    r"""(?ix) ( (?: password | passwd | secret | token | api[_-]?key ) ["']? \s* [=:] \s* ["']?
              | authorization ["']? \s* [=:] \s* ["']? (?: \w+ \s+ )?
              | bearer \s+ ) [^\s"',;&}]+"""
)
_SECRET_NAME = re.compile(r"(?i)pass|secret|token|key|auth|cookie|credential")
# control characters, line and paragraph separators, marks that turn the direction of text, lone surrogates
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SPELT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

_known: dict[str, None] = {}  # the secrets of this process, the longest first
_read_environment = False


def learn(value: str) -> None:
    """Hide from now on, wherever it turns up, what is secret in a URL or in a connection's JSON object."""
    found = {secret for secret in _secrets_of(value) if len(secret) >= SHORTEST and secret.lower() not in _COMMON}
    if not found <= _known.keys():
        ordered = sorted({*_known, *found}, key=len, reverse=True)
        _known.clear()
        _known.update(dict.fromkeys(ordered))


def hide_password(text: str) -> str:
    """Return the text with passwords in URLs, and every secret that this process knows, replaced by ``***``."""
    text = _QUERY.sub(r"\1***", _URL.sub(_without_password, text))
    _learn_environment()
    for secret in list(_known):
        if secret in text:
            text = text.replace(secret, "***")
    return text


def _without_password(url: re.Match[str]) -> str:
    authority, at, rest = url[0].rpartition("@")  # the last one: an unquoted password may hold others
    return _PASSWORD.sub(r"\1***", authority) + at + rest


def hide(text: str) -> str:
    """Hide what `hide_password` does, and what stands after names like ``password=``."""
    return _NAMED.sub(r"\1***", hide_password(text))


def printable(text: str) -> str:
    """Return the text on one line, with what a terminal would act upon spelt out."""
    return _UNPRINTABLE.sub(lambda found: _SPELT.get(found[0]) or f"\\u{ord(found[0]):04x}", text)


def one_line(error: BaseException) -> str:
    """Say an error in one line of bounded length, without passwords."""
    said = " ".join(str(error)[: 4 * _LONGEST_LINE].split())
    return hide_password(f"{type(error).__name__}: {said}" if said else type(error).__name__)[:_LONGEST_LINE]


def _learn_environment() -> None:
    global _read_environment
    if not _read_environment:
        _read_environment = True
        for name, value in os.environ.items():
            if _OURS.fullmatch(name):
                learn(value)


def _secrets_of(value: str) -> Iterator[str]:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        yield from _secrets_of_url(value)
    else:
        yield from _secrets_in(found, "")


def _secrets_in(value: object, name: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _secrets_in(item, str(key))
    elif isinstance(value, list):
        for item in value:
            yield from _secrets_in(item, name)
    elif isinstance(value, str):
        yield from _secrets_of_url(value)
        if _SECRET_NAME.search(name):
            yield value
            yield value.rpartition(" ")[2]  # that of "Bearer …"


def _secrets_of_url(value: str) -> Iterator[str]:
    try:
        password = urlsplit(value).password
    except ValueError:
        return
    if password:
        yield password
        yield unquote(password)
