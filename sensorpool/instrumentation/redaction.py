"""What may be shown: no secret, and nothing that a terminal or a log takes for more than text."""

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
LONGEST_TEXT = 65_536  # characters that are looked through: what is cut before it is hidden may end in half a secret
_SHORTEST_OF_OTHERS = 4  # characters: what a source names has passed a rule of its own
_LONGEST_LINE = 500  # characters
_LONGEST_SECRET = 65_536  # characters
_TELLING_LINE = 20  # characters: a shorter line of a secret may be anything
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

Source = Callable[[], Iterable[str]]

_known: tuple[str, ...] = ()  # the secrets of this process, the longest first
_sources: dict[str, Source] = {}  # by the name that another process finds them by
_read_environment = False
_learning = threading.RLock()  # also held while sources are asked: what one thread has been told, all hide


@lru_cache(maxsize=1024)  # sensors say at each poke what they connect with
def learn(value: str) -> None:
    """Hide from now on, wherever it turns up, what is secret in a URL or in a connection's JSON object."""
    _learn(_secrets_of(value))


def ask(source: Source) -> None:
    """Ask a function of a module, before anything is hidden, for the secrets that it has come to know since.

    What it returns is secret as a whole; where that is a URL or a JSON object, so is what is secret in it.
    """
    _sources[f"{source.__module__}:{source.__qualname__}"] = source


def sources() -> list[str]:
    """Name the functions that are asked, for a process that this one starts."""
    return list(_sources)


def ask_named(names: Iterable[str]) -> None:
    """Ask the functions that another process named."""
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
    authority, at, rest = url[0].rpartition("@")  # the last one: an unquoted password may hold others
    return _PASSWORD.sub(r"\1***", authority) + at + rest


def hide(text: str) -> str:
    """Hide what `hide_password` does, and what stands after names like ``password=``."""
    return _NAMED.sub(r"\1***", hide_password(text))


def printable(text: str) -> str:
    """Return the text on one line, with what a terminal would act upon spelt out."""
    return _UNPRINTABLE.sub(lambda found: _SPELT.get(found[0]) or f"\\u{ord(found[0]):04x}", text)


def safe_line(text: object, longest: int) -> str:
    """Return a text of others in one printable line, without passwords, and cut to so many characters."""
    return printable(hide_password(str(text)[:LONGEST_TEXT]))[:longest]


def one_line(error: BaseException) -> str:
    """Say an error, its type and its text, in one printable line of bounded length, without passwords."""
    said = _text_of(error)
    line = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return printable(line)[:_LONGEST_LINE]


def error_text(error: BaseException, longest: int = _LONGEST_LINE) -> str:
    """Say the text of an error as `one_line` does, without the type where there is a text, in so many characters."""
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
                _learn(found, _SHORTEST_OF_OTHERS)
                _learn(secret for each in found for secret in _secrets_of(each))


def _start_anew() -> None:
    """In a forked child: a thread of the parent may have held the lock."""
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
    """Yield a secret as it stands in texts: in URLs, in JSON, in what Python shows of an object, on one line."""
    yield secret
    yield from (quote(secret, errors="replace"), quote(secret, safe="", errors="replace"))
    yield quote_plus(secret, errors="replace")
    yield from (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1])
    lines = secret.splitlines()
    if len(lines) > 1:  # a key: it may be said line by line
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
