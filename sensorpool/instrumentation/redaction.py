"""Redaction: texts are shown without secrets, and without characters that a terminal or a log would act upon."""

import json
import os
import re
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from importlib import import_module
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

SHORTEST = 6  # characters: hiding every "1" of a line would hide the line
LONGEST_TEXT = 65_536  # characters that are searched: a text cut shorter before its redaction may end in half a secret
_SHORTEST_OF_OTHERS = 4  # characters: a source has checked its secrets by a rule of its own
_LONGEST_LINE = 500  # characters
_LONGEST_SECRET = 65_536  # characters
_TELLING_LINE = 20  # characters: a shorter line of a secret may be common text
_COMMON = frozenset({"sensorpool", "postgres", "postgresql", "redis", "airflow", "celery", "worker", "localhost"})
_OURS = re.compile(r"SENSORPOOL_(CONN_\w+|\w+_URL)")

# The time of every pattern grows with the text, not with its square: any program may write the text, and threads wait.
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

# the address of a server: no part of it is secret, while an address of the web may have a secret in its path
_SERVER = re.compile(r"(redis|rediss|sentinel|amqps?|pyamqp|postgres(ql)?|mysql|mariadb|sqlite)(\+\w+)?://[^@?]*")

Source = Callable[[], Iterable[str]]

_known: tuple[str, ...] = ()  # the secrets of this process, the longest first
_sources: dict[str, Source] = {}  # by `module:function`, so that another process finds them
_read_environment = False
_learning = threading.RLock()  # also held while sources are asked, so that all threads hide what one has learnt


@lru_cache(maxsize=1024)  # sensors call it at each poke
def learn(value: str) -> None:
    """Hide the secrets of a URL, or of a connection's JSON object, in all texts from now on."""
    _learn(_secrets_of(value))


def ask(source: Source) -> None:
    """Have a function of a module asked for its new secrets before each redaction.

    Each value that it returns is secret as a whole, but for the address of a server without a password; of a URL or a
    JSON object, the secrets within it are, too.
    """
    _sources[f"{source.__module__}:{source.__qualname__}"] = source


def sources() -> list[str]:
    """Return the names of the functions that are asked, for a process that this one starts."""
    return list(_sources)


def ask_named(names: Iterable[str]) -> None:
    """Have the functions asked whose names another process got from `sources`."""
    for name in names:
        module, _, function = name.partition(":")
        ask(getattr(import_module(module), function))


def hide_password(text: str) -> str:
    """Return the text with passwords in URLs, and every secret that this process knows, replaced by ``***``."""
    text = _QUERY.sub(r"\1***", _URL.sub(_without_password, text))
    _learn_environment()
    if _sources:
        _ask_sources()
    for secret in _known:
        if secret in text:
            text = text.replace(secret, "***")
    return text


def _without_password(url: re.Match[str]) -> str:
    authority, at, rest = url[0].rpartition("@")  # the last @: an unquoted password may contain others
    return _PASSWORD.sub(r"\1***", authority) + at + rest


def hide(text: str) -> str:
    """Hide the same as `hide_password`, and the text after names like ``password=``."""
    return _NAMED.sub(r"\1***", hide_password(text))


def printable(text: str) -> str:
    """Return the text on one line, with control characters spelt out."""
    return _UNPRINTABLE.sub(lambda found: _SPELT.get(found[0]) or f"\\u{ord(found[0]):04x}", text)


def storable(text: str) -> str:
    """Return a text fit for every database and log, line breaks and all: no NUL, no lone surrogate, no password."""
    return hide(text).replace("\x00", "\\0").encode("utf-8", "replace").decode()


def safe_line(text: object, longest: int) -> str:
    """Return a text as one printable line, without passwords, cut to so many characters."""
    return printable(hide_password(str(text)[:LONGEST_TEXT]))[:longest]


def one_line(error: BaseException) -> str:
    """Return an error's type and text as one printable line of bounded length, without passwords."""
    said = _text_of(error)
    line = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return printable(line)[:_LONGEST_LINE]


def error_text(error: BaseException, longest: int = _LONGEST_LINE) -> str:
    """Return an error's text as one printable line of so many characters; its type if it has no text."""
    return printable(_text_of(error) or type(error).__name__)[:longest]


def _text_of(error: BaseException) -> str:
    try:
        return " ".join(hide_password(str(error)[:LONGEST_TEXT]).split())
    except Exception:
        return "(its text cannot be read)"


def _ask_sources() -> None:
    with _learning:
        for source in list(_sources.values()):
            if found := list(source()):
                _learn((each for each in found if not _SERVER.fullmatch(each)), _SHORTEST_OF_OTHERS)
                _learn(secret for each in found for secret in _secrets_of(each))


def _start_anew() -> None:
    """Make a new lock in a forked child: a thread of the parent may have held the old one."""
    global _learning
    _learning = threading.RLock()


os.register_at_fork(after_in_child=_start_anew)


def _learn_environment() -> None:
    global _read_environment
    if not _read_environment:
        _read_environment = True
        for name, value in os.environ.items():
            if _OURS.fullmatch(name):
                learn(value)


def _learn(secrets: Iterable[str], shortest: int = SHORTEST) -> None:
    global _known
    telling = (each for each in secrets if shortest <= len(each) <= _LONGEST_SECRET and each.lower() not in _COMMON)
    found = {spelt for secret in telling for spelt in _spellings(secret)}
    with _learning:
        if not found.issubset(_known):
            _known = tuple(sorted({*_known, *found}, key=len, reverse=True))


def _spellings(secret: str) -> Iterator[str]:
    """Yield the spellings of a secret: plain, in URLs, in JSON, in `repr`, on one line."""
    yield secret
    yield from (quote(secret, errors="replace"), quote(secret, safe="", errors="replace"))
    yield quote_plus(secret, errors="replace")
    yield from (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1])
    lines = secret.splitlines()
    if len(lines) > 1:  # a key, whose lines may be shown one by one
        yield " ".join(secret.split())
        yield from (line for line in lines if len(line) >= _TELLING_LINE and not line.startswith("--"))


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
        yield from _secrets_of(value) if value[:1] in "{[" else _secrets_of_url(value)
        if _SECRET_NAME.search(name):
            yield value
            if len(words := value.split()) == 2:  # "Bearer …"
                yield words[1]


def _secrets_of_url(value: str) -> Iterator[str]:
    if len(several := re.split(r";(?=\w+://)", value)) > 1:  # brokers
        for each in several:
            yield from _secrets_of_url(each)
        return
    try:
        parts = urlsplit(value)
        user, password = parts.username or "", parts.password
        query = parse_qsl(parts.query)
    except ValueError:
        return
    if password:
        yield password
        yield unquote(password)
        yield b64encode(f"{unquote(user)}:{unquote(password)}".encode(errors="replace")).decode()  # as in a header
    yield from (text for name, text in query if _SECRET_NAME.search(name))
