"""PathSensor, against files of this machine, of fsspec's memory, and of an FTP server."""

import errno
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import pytest

from harness.endpoints.file_servers import FtpServer
from sensorpool.errors import CannotPoke, InfraFailure, SettingsError
from sensorpool.sensors import PathSensor, filesystems
from sensorpool.sensors.connections import PokeFailed
from sensorpool.sensors.failures import as_infra_failure

SetConnection = Callable[[str, str], None]


@pytest.fixture
def memory() -> Iterator[Any]:
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]


@pytest.fixture
def as_nobody() -> Iterator[None]:
    """Root may look at everything, so be somebody else."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    yield
    os.seteuid(0)


def aged(path: Path, seconds: float, content: str = "12345") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    os.utime(path, (time.time() - seconds,) * 2)
    return path


def test_a_file_that_comes_and_goes(tmp_path: Path) -> None:
    for url in (str(tmp_path / "file"), f"file://{tmp_path}/file", f"local://{tmp_path}/file"):
        sensor = PathSensor(url)
        assert sensor.poke({}) is False
        (tmp_path / "file").touch()
        assert sensor.poke({}) is True
        (tmp_path / "file").unlink()
        assert sensor.poke({}) is False


def test_a_uri_of_a_file_is_percent_encoded(tmp_path: Path) -> None:
    names = ["a b.csv", "é.csv", "100%.csv", "%41.csv", "what?.csv", "[1]*.csv", "a#b.csv"]
    for name in names:
        sensor = PathSensor((tmp_path / name).as_uri())
        assert sensor.poke({}) is False
        (tmp_path / name).touch()
        assert sensor.poke({}) is True
        (tmp_path / name).unlink()
    (tmp_path / "a b.csv").touch()
    assert PathSensor(f"file://localhost{tmp_path}/a%20b.csv").poke({}) is True
    assert PathSensor(f"file://{tmp_path}/a%20*.csv").poke({}) is True
    assert PathSensor(f"local://{tmp_path}/a%20b.csv").poke({}) is False
    assert PathSensor.location_of({"path": "file:///data/a%20b/*.csv"}) == "file:///data/a b/"
    assert PathSensor.location_of({"path": "/data/a b/*.csv"}) == "file:///data/a b/"


def test_a_file_of_a_clock_that_is_ahead_hides_no_old_one(tmp_path: Path) -> None:
    for number in range(8):
        aged(tmp_path / f"ahead{number}.csv", -3600)
    sensor = PathSensor(f"{tmp_path}/*.csv", min_age=60)
    assert sensor.poke({}) is False
    aged(tmp_path / "old.csv", 100)
    assert sensor.poke({}) is True


def test_nothing_below_has_changed_for_a_while(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    sensors = [PathSensor(path, unchanged_for=60) for path in (str(folder), f"{folder}/**", f"{tmp_path}/i*/**/*.csv")]
    assert not any(sensor.poke({}) for sensor in sensors)
    aged(folder / "a.csv", 100)
    assert all(sensor.poke({}) for sensor in sensors)
    aged(folder / "deep" / "b.csv", 10)
    assert not any(sensor.poke({}) for sensor in sensors)
    aged(folder / "deep" / "b.csv", 61)
    assert all(sensor.poke({}) for sensor in sensors)
    assert PathSensor(str(folder / "a.csv"), unchanged_for=60, min_size=5).poke({}) is True
    assert PathSensor(str(folder / "a.csv"), unchanged_for=60, min_size=6).poke({}) is False
    assert PathSensor(str(folder / "a.csv"), unchanged_for=101).poke({}) is False


def test_what_lies_below_a_missing_folder_or_a_file_is_not_there_yet(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in ("none/a", "none/*", "none/**/a", "file/a", "file/*", "*/a", "*/*", "**/a/*"):
        assert PathSensor(f"{tmp_path}/{path}").poke({}) is False


def test_age_and_size_must_meet_in_one_file(tmp_path: Path) -> None:
    aged(tmp_path / "old_and_empty", 100, "")
    aged(tmp_path / "new_and_big", 0, "x" * 1000)
    for path in ("old_and_empty", "new_and_big", "*", "[on]*", "**", ""):
        assert PathSensor(f"{tmp_path}/{path}", min_age=50, min_size=10).poke({}) is False
    aged(tmp_path / "both", 51, "x" * 10)
    for path in ("both", "*", "b?th", "[a-c]*", "**", ""):
        assert PathSensor(f"{tmp_path}/{path}", min_age=50, min_size=10).poke({}) is True
        assert PathSensor(f"{tmp_path}/{path}", min_age=200).poke({}) is False
        assert PathSensor(f"{tmp_path}/{path}", min_size=1001).poke({}) is False


def test_without_min_age_a_clock_that_is_ahead_does_not_matter(tmp_path: Path) -> None:
    aged(tmp_path / "file", -3600)
    for path in ("file", "*"):
        assert PathSensor(f"{tmp_path}/{path}").poke({}) is True
        assert PathSensor(f"{tmp_path}/{path}", min_age=0.001).poke({}) is False


def test_a_folder_counts_when_a_file_lies_below_it(tmp_path: Path) -> None:
    (tmp_path / "in" / "empty").mkdir(parents=True)
    assert [PathSensor(f"{tmp_path}/{path}").poke({}) for path in ("in", "in/", "i*", "**")] == [False] * 4
    aged(tmp_path / "in" / "deep" / "er" / "file", 0)
    assert [PathSensor(f"{tmp_path}/{path}").poke({}) for path in ("in", "in/", "i*", "**")] == [True] * 4


@pytest.mark.parametrize(
    ("pattern", "holds"),
    [
        ("day=*/part-?.csv", True),
        ("day=*/part-??.csv", False),
        ("day=[12]/part-1.csv", True),
        ("day=[!1]/part-1.csv", False),
        ("*/part-1.csv", True),
        ("**/part-1.csv", True),
        ("**/day=1/*.csv", True),
        ("**/day=1/**/*.csv", True),
        ("day=1/**", True),
        ("*.csv", False),
        ("DAY=*/*.csv", False),
        ("*/*hidden*", False),
        ("*/.hidden*", True),
        ("**/*.tmp", False),
        (".*/a.tmp", True),
        ("a[[]1].txt", True),
        ("a[1].txt", False),
    ],
)
def test_patterns_mean_the_same_everywhere(
    tmp_path: Path, memory: Any, ftp_server: FtpServer, pattern: str, holds: bool
) -> None:
    for path in ("day=1/part-1.csv", "day=1/.hidden", ".unseen/a.tmp", "a[1].txt"):
        aged(tmp_path / path, 0)
        memory.pipe(f"/store/{path}", b"12345")
    assert PathSensor(f"{tmp_path}/{pattern}").poke({}) is holds
    assert PathSensor(f"memory://store/{pattern}").poke({}) is holds
    assert PathSensor(f"{ftp_server.url}/{pattern}").poke({}) is holds


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    (tmp_path / "ring").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    for path in ("dangling", "pipe", "*", "**", "**/x", ""):
        assert PathSensor(f"{tmp_path}/{path}").poke({}) is False
    (tmp_path / "link").symlink_to(aged(tmp_path / "real" / "file", 0))
    assert PathSensor(f"{tmp_path}/link").poke({}) is True
    assert PathSensor(f"{tmp_path}/l*").poke({}) is True


@pytest.mark.parametrize("kind", [errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG])
def test_a_link_without_a_target_hides_no_file_beside_it(tmp_path: Path, kind: int) -> None:
    plain = aged(tmp_path / "plain", 0)
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    targets = {errno.ENOENT: tmp_path / "none", errno.ENOTDIR: plain / "x", errno.ENAMETOOLONG: tmp_path / ("x" * 300)}
    links = [folder / where / f"{number}.csv" for where in (".", "deep") for number in range(8)]
    for link in links:
        link.symlink_to(targets.get(kind, link.name))
        with pytest.raises(OSError, match=os.strerror(kind)):
            link.stat()
    paths = ("in", "in/*", "in/*.csv", "in/**", "in/deep", "*/deep", "*/deep/*.csv", "*/0.csv", "*/deep/[0-9].csv")
    for path in paths:
        assert PathSensor(f"{tmp_path}/{path}").poke({}) is False
    aged(folder / "real.csv", 0)
    aged(folder / "deep" / "9.csv", 0)
    aged(tmp_path / "other" / "0.csv", 0)
    for path in paths:
        assert PathSensor(f"{tmp_path}/{path}").poke({}) is True


def test_a_file_that_goes_during_the_look_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        aged(tmp_path / f"{number}.csv", 0)
    listed = os.scandir(tmp_path)
    with listed:
        items = list(listed)
    for item in items[:-1]:
        os.unlink(item.path)

    class Listing(list[os.DirEntry[str]]):
        def __enter__(self) -> "Listing":
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(os, "scandir", lambda _: Listing(items))
    assert PathSensor(f"{tmp_path}/*").poke({}) is True


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path / "in")
    os.mkdir(folder)
    os.symlink(b"none", folder + b"/\xff0.csv")
    for path in ("in", "in/*.csv"):
        assert PathSensor(f"{tmp_path}/{path}").poke({}) is False
    with open(folder + b"/\xff1.csv", "wb"):
        pass
    for path in ("in", "in/*.csv", "**/?1.csv"):
        assert PathSensor(f"{tmp_path}/{path}").poke({}) is True


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
def test_what_may_not_be_looked_at_hides_no_file_beside_it(as_nobody: None) -> None:
    base = Path(f"/tmp/sensorpool-{os.getpid()}-{time.monotonic_ns()}")
    closed = [base / f"{number}" for number in range(8)]
    for folder in closed:
        folder.mkdir(parents=True)
        (base / f"link{folder.name}.csv").symlink_to(folder / "file")
        folder.chmod(0)
    paths = ("", "/*", "/**", "/*/0.csv", "/*/*.csv", "/**/*.csv")
    try:
        for path in paths:
            with pytest.raises(PermissionError, match="Permission denied"):
                PathSensor(f"{base}{path}").poke({})
        aged(base / "open" / "0.csv", 0)
        for path in paths:
            assert PathSensor(f"{base}{path}").poke({}) is True
    finally:
        for folder in closed:
            folder.chmod(0o700)
        shutil.rmtree(base)


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
def test_what_may_not_be_looked_at_is_an_error(tmp_path: Path, as_nobody: None) -> None:
    closed = Path(f"/tmp/sensorpool-{os.getpid()}-{time.monotonic_ns()}")
    closed.mkdir(mode=0)
    try:
        for path in ("", "/file", "/*", "/**/file"):
            with pytest.raises(PermissionError, match="Permission denied") as caught:
                PathSensor(f"{closed}{path}").poke({})
            assert not getattr(caught.value, "is_infra_failure", False)
    finally:
        closed.rmdir()


def test_an_impossible_path_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "ring").symlink_to(tmp_path / "ring")
    for path in (f"{tmp_path}/{'x' * 300}", f"{tmp_path}/ring"):
        with pytest.raises(OSError, match=r"too long|Too many levels"):
            PathSensor(path).poke({})


def test_a_network_filesystem_that_is_gone_is_an_infra_failure() -> None:
    for number in (errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.EMFILE):
        assert as_infra_failure(OSError(number, "gone"), "why") is not None
    for error in (OSError(errno.EACCES, "no"), ValueError(), KeyError("503")):
        assert as_infra_failure(error, "why") is None


def test_an_error_that_comes_of_the_network_is_an_infra_failure() -> None:
    listing = ValueError("cannot list")
    listing.__cause__ = ConnectionResetError()
    assert as_infra_failure(listing, "why") is not None
    ring = ValueError()
    ring.__cause__ = ring
    assert as_infra_failure(ring, "why") is None
    busy = ValueError()
    busy.status = 503  # type: ignore[attr-defined]
    assert as_infra_failure(busy, "why") is not None


def test_files_in_memory(memory: Any) -> None:
    sensor = PathSensor("memory://in/file", min_size=5)
    assert sensor.poke({}) is False
    memory.pipe("/in/file", b"1234")
    assert sensor.poke({}) is False
    memory.pipe("/in/file", b"12345")
    assert sensor.poke({}) is True
    assert PathSensor("memory://in").poke({}) is True
    assert PathSensor("memory://in/*", min_age=3600).poke({}) is False
    memory.store["/in/file"].modified = datetime(2020, 1, 1, tzinfo=UTC)
    assert PathSensor("memory://in/*", min_age=3600).poke({}) is True
    assert PathSensor("memory://in/file", min_age=3600).poke({}) is True


class StrictFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """Refuses its options, by an error of this kind."""

    protocol = "strict"
    error: type[Exception] = ValueError

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        raise self.error(f"cannot be: {sorted(options.items())}")


@pytest.mark.parametrize("cachable", [True, False])
@pytest.mark.parametrize("error", [TypeError, ValueError])
def test_options_that_a_constructor_refuses_are_a_wrong_setting(
    monkeypatch: pytest.MonkeyPatch, set_connection: SetConnection, error: type[Exception], cachable: bool
) -> None:
    fsspec.register_implementation("strict", StrictFileSystem, clobber=True)
    monkeypatch.setattr(StrictFileSystem, "error", error)
    monkeypatch.setattr(StrictFileSystem, "cachable", cachable)
    set_connection("store", json.dumps({"key": "swordfish", "client": {"secrets": ["hunter22"]}}))
    with pytest.raises(
        SettingsError, match=f"SENSORPOOL_CONN_STORE: strict:// refuses its options: {error.__name__}"
    ) as caught:
        PathSensor("strict://a/b", conn_id="store").poke({})
    assert "key" in str(caught.value)
    for secret in ("swordfish", "hunter22"):
        assert secret not in str(caught.value)
    with pytest.raises(PokeFailed, match=f"strict://a/b: {error.__name__}"):
        PathSensor("strict://a/b").poke({})


class TiresomeFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """Breaks its connection when it is told to, tells neither size nor time, and caches what it can."""

    protocol = "tiresome"
    made: list["TiresomeFileSystem"]
    failure: Exception | None

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.broken = False
        self.made.append(self)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        if self.broken:
            raise EOFError
        if self.failure:
            raise self.failure
        return {"name": path, "type": "file", "size": None}


@pytest.fixture
def tiresome() -> type[TiresomeFileSystem]:
    fsspec.register_implementation("tiresome", TiresomeFileSystem, clobber=True)
    TiresomeFileSystem.made, TiresomeFileSystem.failure = [], None
    filesystems._filesystems._things.clear()
    return TiresomeFileSystem


def test_a_filesystem_is_kept_until_it_breaks(tiresome: type[TiresomeFileSystem]) -> None:
    sensors = [PathSensor(f"tiresome://host/{name}") for name in "abc"]
    assert all(sensor.poke({}) for sensor in sensors for _ in range(3))
    assert len(tiresome.made) == 1
    assert not tiresome._cache
    tiresome.made[0].broken = True
    assert all(sensor.poke({}) for sensor in sensors)
    assert len(tiresome.made) == 2
    tiresome.failure = ConnectionResetError("gone")
    with pytest.raises(InfraFailure, match="tiresome://host/a: ConnectionResetError: gone"):
        sensors[0].poke({})
    assert not filesystems._filesystems


def test_a_closed_folder_on_a_server_hides_no_file_beside_it(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe("/store/a/file", b"")
    memory.pipe("/store/z/file", b"")
    ls, info = type(memory).ls, type(memory).info

    def closed(ask: Any) -> Any:
        def refuse(self: Any, path: str, *more: Any, **options: Any) -> Any:
            if path.strip("/").startswith(("store/a/", "store/z/")) or path.strip("/") in ("store/a", "store/z"):
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return ask(self, path, *more, **options)

        return refuse

    monkeypatch.setattr(type(memory), "ls", closed(ls))
    monkeypatch.setattr(type(memory), "info", closed(info))
    paths = ("memory://store", "memory://store/*", "memory://store/*/file", "memory://store/**/f*")
    for path in paths:
        with pytest.raises(PermissionError, match="Permission denied"):
            PathSensor(path).poke({})
    memory.pipe("/store/m/file", b"")
    for path in paths:
        assert PathSensor(path).poke({}) is True


def test_a_filesystem_that_does_not_tell_is_an_error(tiresome: type[TiresomeFileSystem]) -> None:
    assert PathSensor("tiresome://host/a").poke({})
    with pytest.raises(PokeFailed, match="leave out min_age"):
        PathSensor("tiresome://host/a", min_age=1).poke({})
    with pytest.raises(PokeFailed, match="leave out min_size"):
        PathSensor("tiresome://host/a", min_size=1).poke({})


def test_filesystems_are_bounded(tiresome: type[TiresomeFileSystem], set_connection: SetConnection) -> None:
    for number in range(filesystems.MAX_FILESYSTEMS + 5):
        set_connection("some", json.dumps({"account": number}))
        assert PathSensor("tiresome://host/a", conn_id="some").poke({})
    assert len(filesystems._filesystems) == filesystems.MAX_FILESYSTEMS


def test_a_package_that_is_missing_is_named() -> None:
    fsspec.register_implementation("absent", "no_such_package.FileSystem", clobber=True, errtxt="Install absent")
    with pytest.raises(CannotPoke, match=r"absent:// needs a package on this worker: Install absent"):
        PathSensor("absent://a/b").poke({})


def test_a_connection_must_be_an_object(set_connection: SetConnection) -> None:
    set_connection("store", "hunter2")
    with pytest.raises(SettingsError, match="SENSORPOOL_CONN_STORE is not a JSON object"):
        PathSensor("memory://a", conn_id="store").poke({})


@pytest.mark.parametrize(
    ("context", "error", "said"),
    [
        ({"path": 5}, TypeError, "path is a string"),
        ({"path": ""}, ValueError, "path is empty"),
        ({"path": "a\0b"}, ValueError, "control character"),
        ({"path": "data/file"}, ValueError, "relative"),
        ({"path": "~/file"}, ValueError, "relative"),
        ({"path": "./file"}, ValueError, "relative"),
        ({"path": "file://data/file"}, ValueError, "relative"),
        ({"path": "gopher://host/file"}, ValueError, "unknown protocol gopher"),
        ({"path": "https://host/file?token=hunter2"}, ValueError, "wait for it with HttpSensor"),
        ({"path": "zip://a::memory://b"}, ValueError, "chain"),
        ({"path": "ftp://me:hunter2@host/a"}, ValueError, "password"),
        ({"path": "s3://buck*/a"}, ValueError, "glob character"),
        ({"path": "ftp://[::1/a"}, ValueError, "not a URL|chain"),
        ({"path": "/a", "min_age": -1}, ValueError, "min_age is a number of seconds from 0 up"),
        ({"path": "/a", "min_age": float("inf")}, ValueError, "min_age"),
        ({"path": "/a", "min_age": "1"}, TypeError, "min_age"),
        ({"path": "/a", "min_age": True}, TypeError, "min_age"),
        ({"path": "/a", "unchanged_for": -1}, ValueError, "unchanged_for is a number of seconds from 0 up"),
        ({"path": "/a", "min_size": -1}, ValueError, "min_size is a whole number of bytes from 0 up"),
        ({"path": "/a", "min_size": 1.5}, TypeError, "min_size"),
        ({"path": "/a", "conn_id": "x"}, ValueError, "needs no connection"),
        ({"path": "memory://a", "conn_id": "x y"}, ValueError, "names a connection"),
        ({"path": "memory://a", "conn_id": 5}, TypeError, "conn_id is a string"),
    ],
)
def test_refuses(context: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        PathSensor(**context)
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)
