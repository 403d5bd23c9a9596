"""Faults 44-45: two versions at once on one database and queue, of a sensor class and of sensorpool itself (G12)."""

import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest

from harness import audit
from harness.servers import Elsewhere, Server, fresh_database
from harness.service import Service
from harness.until import until
from sensorpool.store import migrate
from sensorpool.testing import land, pokes
from tests.faults.trial import SENSOR, Record

ROOT = Path(__file__).parents[2]
FLEET = """
from sensorpool.testing import ScriptedSensor

class Fleet(ScriptedSensor):
    poke_context_fields = {fields}

    def __init__(self, folder, name{more}):
        super().__init__(folder, "{version} " + name)
        self.landed = name

    def poke(self, context):
        super().poke(context)
        import os
        return os.path.exists(os.path.join(self.folder, self.landed + ".landed"))
"""


def test_rolling_deploy_of_a_changed_class(
    make_service: Callable[..., Service], tmp_path: Path, record: Callable[[str], Record]
) -> None:
    """The new class takes one argument more; it is registered with that once all workers have it."""
    folders = {}
    for version, fields, more in (
        ("old", ("folder", "name"), ""),
        ("new", ("folder", "name", "region"), ", region='x'"),
    ):
        folders[version] = tmp_path / version
        folders[version].mkdir()
        (folders[version] / "fleet.py").write_text(FLEET.format(fields=fields, more=more, version=version))
    path = {version: os.pathsep.join([str(folder), str(ROOT)]) for version, folder in folders.items()}
    service = make_service(sensors_enabled="fleet.Fleet")

    def register(number: int, **more: str) -> int:
        context = {"folder": str(tmp_path), "name": f"g{number}", **more}
        [made] = service.pool.register_many([{"sensor": "fleet.Fleet", "poke_context": context}], try_out=False)
        return made.id

    ids = [register(number) for number in range(20)]
    old = service.worker(PYTHONPATH=path["old"])
    service.beat()
    until("pokes by the old class", lambda: len([name for name in pokes(tmp_path) if name.startswith("old")]) == 20)
    service.worker(PYTHONPATH=path["new"])
    until("pokes by both", lambda: any(name.startswith("new") for name in pokes(tmp_path)))
    for number in range(10):
        land(tmp_path, f"g{number}")
    old.send_signal(signal.SIGTERM)
    old.wait(60)
    ids += [register(number, region="north") for number in range(20, 30)]
    for number in range(10, 30):
        land(tmp_path, f"g{number}")
    _assert_all_landed(service, ids, record("44 rolling deploy of a changed class"))


@pytest.fixture
def version_before(tmp_path: Path) -> Path:
    """The code before the newest migration, out of the repository's history."""
    newest = sorted((ROOT / "migrations" / "versions").glob("0*.py"))[-1]
    added = ["log", "--diff-filter=A", "--format=%H", "--", str(newest)]
    found = subprocess.run(["git", "-C", str(ROOT), *added], capture_output=True, text=True)
    commits = found.stdout.split()
    archive = [*("git", "-C", str(ROOT), "archive", "--format=tar"), f"{commits[-1] if commits else '-'}^"]
    packed = subprocess.run([*archive, "sensorpool", "migrations"], capture_output=True)
    if packed.returncode:
        pytest.skip("the version before the newest migration is not in this repository's history (a shallow clone?)")
    folder = tmp_path / "before"
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder


@pytest.fixture
def empty_database(postgres_server: Server | Elsewhere) -> Iterator[str]:
    """URL of a database without tables."""
    with fresh_database(postgres_server) as url:
        yield url


def test_migration_under_load(
    version_before: Path, empty_database: str, redis_url: str, tmp_path: Path, record: Callable[[str], Record]
) -> None:
    """The version before runs, the schema is brought up to date beneath it, and it is replaced process by process."""
    service = Service(tmp_path, empty_database, redis_url)
    before = {"PYTHONPATH": str(version_before)}
    try:
        done = service.cli("db", "upgrade", **before)
        assert done.returncode == 0, done.stderr
        assert migrate.current(empty_database) != migrate.head()
        audit.install(service.pool.database)
        ids = _register_by(service, version_before, range(20))
        old_worker, old_beat = service.worker(**before), service.beat(**before)
        until("pokes of all", lambda: len(pokes(tmp_path)) == 20)
        for number in range(5):
            land(tmp_path, f"g{number}")
        upgraded = service.cli("db", "upgrade")
        assert upgraded.returncode == 0, upgraded.stderr
        ids += _register_by(service, version_before, range(20, 30))  # the version before, on the new schema
        for number in range(5, 10):
            land(tmp_path, f"g{number}")
        service.worker()
        ids += [
            service.pool.register(SENSOR, {"folder": str(tmp_path), "name": f"g{number}"}).id
            for number in range(30, 40)
        ]
        until("pokes by both versions", lambda: len({p.pid for some in pokes(tmp_path).values() for p in some}) >= 3)
        for process in (old_beat, old_worker):
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        service.beat()
        for number in range(10, 40):
            land(tmp_path, f"g{number}")
        _assert_all_landed(service, ids, record("45 migration under load, versions N-1 and N at once"))
    finally:
        service.stop()


def _register_by(service: Service, version: Path, numbers: range) -> list[int]:
    code = (
        "import sensorpool\n"
        f"for n in range({numbers.start}, {numbers.stop}):\n"
        f"    print(sensorpool.register({SENSOR!r}, {{'folder': {str(service.folder)!r}, 'name': f'g{{n}}'}}).id)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | service.environment | {"PYTHONPATH": str(version)},
        cwd=service.folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


def _assert_all_landed(service: Service, ids: list[int], record: Record) -> None:
    states = service.pool.wait(ids, 60)
    found = audit.read(service.pool.database)
    record.add(
        sensors=len(ids),
        lost=sum(state == "sensing" for state in states.values()),
        doubled=len(found.doubled) + len(found.changed),
        wrong=sum(state not in {"sensing", "success"} for state in states.values()),
        recovery=[],
    )
    assert set(states.values()) == {"success"}, service.logs()[-3000:]
    assert found.is_clean, found
