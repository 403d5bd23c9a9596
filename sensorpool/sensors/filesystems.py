"""Remote files, through fsspec: any file that has a URL and an fsspec implementation."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import fsspec
from fsspec.registry import registry

from sensorpool.errors import CannotPoke, SettingsError
from sensorpool.sensors.connections import PokeFailed, one_line, shown_url
from sensorpool.sensors.failures import as_infra_failure
from sensorpool.sensors.remote_tree import tree_of
from sensorpool.sensors.shared import Shared
from sensorpool.sensors.tree import Tree

Answer = TypeVar("Answer")
Key = tuple[str, str, int]

MAX_FILESYSTEMS = 256  # more than are in use at once: one that is dropped is closed
_filesystems: Shared[Key, Any] = Shared(MAX_FILESYSTEMS, lambda dropped: getattr(dropped, "close", bool)())

_WEB = ("http", "https")
_PORTS = {"http": 80, "https": 443, "ftp": 21, "sftp": 22, "ssh": 22, "smb": 445}


class _OptionsRefused(Exception):
    """A constructor refused the options of a connection."""


def known_protocols() -> frozenset[str]:
    """Return the protocols that fsspec knows, whether or not their packages are installed here."""
    return frozenset((*fsspec.available_protocols(), *registry))


def ask(url: str, options: Mapping[str, Any], question: Callable[[Tree, str], Answer], *, name: str = "") -> Answer:
    """Ask a question about the URL; return its answer. The filesystem is kept for the next question if possible.

    :param options: of a connection; they go to no server but the one that they name.
    :param question: is called with the tree and the URL's path in it, perhaps twice.
    :param name: the variable that the options come from.
    :raises InfraFailure: when the filesystem cannot be reached.
    :raises CannotPoke: when its package is not installed here.
    :raises SettingsError: when its constructor refuses the options, or they name no server; their values are hidden.
    :raises PermissionError: when the path may not be looked at.
    :raises PokeFailed: when the filesystem refuses, or the URL is on another server than the connection's.
    """
    secrets = list(_texts(options))
    try:
        return _ask(url, options, question, name)
    except _OptionsRefused as error:
        raise SettingsError(f"{name}: {_protocol(url)}:// refuses its options: {one_line(error, secrets)}") from None
    except (PokeFailed, SettingsError):
        raise
    except PermissionError as error:
        raise PermissionError(f"{shown_url(url)}: {one_line(error, secrets)}" + (name and f" ({name})")) from error
    except ImportError as error:
        raise CannotPoke(f"{_protocol(url)}:// needs a package on this worker: {one_line(error)}") from error
    except Exception as error:
        reason = f"{shown_url(url)}: {type(error).__name__}: {one_line(error, secrets)}" + (name and f" ({name})")
        raise as_infra_failure(error, reason) or PokeFailed(reason) from error


def _ask(url: str, options: Mapping[str, Any], question: Callable[[Tree, str], Answer], name: str) -> Answer:
    implementation = _implementation(_protocol(url))
    of_url = implementation._get_kwargs_from_urls(url)
    if "host" in of_url:
        of_url["host"] = urlsplit(url).hostname  # fsspec does not read [::1]
    names_server = "host" in of_url or _protocol(url) in _WEB
    if options and names_server:
        _check_server(url, options, name)
        options = {option: value for option, value in options.items() if option != "base_url"}
    arguments = {
        # fsspec takes what follows a # in a name for an option
        **{option: value for option, value in of_url.items() if option not in ("url_query", "url_fragment")},
        **options,
        "skip_instance_cache": True,  # fsspec's own cache has no bound
    }
    if isinstance(arguments.get("auth"), list):  # JSON has no tuples, and httpx takes no list
        arguments["auth"] = tuple(arguments["auth"])

    def make() -> Any:
        try:
            return implementation(**arguments | (_kept_to(url, arguments) if _protocol(url) in _WEB else {}))
        except FileNotFoundError:
            raise _OptionsRefused("they name a file, such as a key, that is not on this worker") from None
        except (TypeError, ValueError) as error:
            if not options or as_infra_failure(error, ""):
                raise
            raise _OptionsRefused(f"{type(error).__name__}: {error}") from error

    def ask_through(filesystem: Any) -> Answer:
        filesystem.invalidate_cache()  # with an old listing, a sensor would never hold
        try:
            return question(tree_of(filesystem), filesystem._strip_protocol(url) or ("/" if names_server else ""))
        finally:
            filesystem.invalidate_cache()  # or listings of whole buckets would stay in memory

    def ask_once_more(key: Key) -> Answer:
        kept = _filesystems.find(key)
        if kept is not None:
            try:
                return ask_through(kept)
            except PokeFailed:
                raise
            except Exception:
                # an idle connection may be dead, and credentials may have been rotated: ask once more over a new one
                _filesystems.drop(key, kept)
        fresh = _filesystems.get(key, make)
        try:
            return ask_through(fresh)
        except PokeFailed:
            raise
        except Exception:
            _filesystems.drop(key, fresh)
            raise

    if not implementation.cachable:
        return ask_through(make())
    key = _protocol(url), json.dumps(arguments, sort_keys=True, default=str)
    if implementation.async_impl:  # safe to share; of the others each is for one thread at a time
        return ask_once_more((*key, 0))
    with _filesystems.numbered(key) as number:
        return ask_once_more((*key, number))


def _implementation(protocol: str) -> Any:
    if protocol not in ("sftp", "ssh"):
        return fsspec.get_filesystem_class(protocol)
    from sensorpool.sensors.sftp_filesystem import SftpFileSystem  # late: paramiko is optional

    return SftpFileSystem


def _kept_to(url: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by which aiohttp sends headers on to no other server when it is redirected."""
    client = arguments.get("client_kwargs", {})
    own = {name.lower() for name in (*arguments.get("headers", {}), *client.get("headers", {}))}

    async def leave_out(request: Any, handle: Callable[[Any], Any]) -> Any:
        if _server(str(request.url)) != _server(url):
            for name in own & {name.lower() for name in request.headers}:
                request.headers.popall(name)
        return await handle(request)

    return {"client_kwargs": {**client, "middlewares": [leave_out]}}


def _check_server(url: str, options: Mapping[str, Any], name: str) -> None:
    """Refuse a URL that is not on the server that a connection names: anybody who registers chooses the URL."""
    own, port = options.get("base_url"), options.get("port")
    if own is None and isinstance(options.get("host"), str):
        own = f"{_protocol(url)}://{options['host']}"
    if not isinstance(own, str):
        example = urlsplit(url)._replace(path="/", query="", fragment="").geturl()
        raise SettingsError(f'{name} names no server: add a "base_url" like "{shown_url(example)}"')
    if not _is_below(url, own, port):
        raise PokeFailed(f"{shown_url(url)} is not below {shown_url(own)}, which {name} is for")


def _is_below(url: str, base: str, port: object) -> bool:
    """Whether a URL is on the server of another one, and below its path.

    :param port: that of URLs without one, if it is not the protocol's.
    """
    try:
        is_there = _server(url, port) == _server(base, port)
    except ValueError:
        return False
    return is_there and f"{urlsplit(url).path}/".startswith(f"{urlsplit(base).path.rstrip('/')}/")


def _server(url: str, port: object = None) -> tuple[str, str | None, object]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or port or _PORTS.get(parts.scheme)


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in a value of JSON: any of them may be a secret."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)


def _protocol(url: str) -> str:
    return url.partition("://")[0]
