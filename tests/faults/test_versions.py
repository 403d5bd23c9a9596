"""Faults 44, 45 and 50: two versions at once on one database and queue, of a class and of sensorpool itself (G12)."""

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from harness import audit
from harness.service import Service
from harness.until import until
from sensorpool import Instance
from sensorpool.model.suspicion import Suspicion
from sensorpool.store import migrate
from sensorpool.testing import land, pokes
from tests.faults.rollout import HANGS, Rollout, assert_all_landed, end
from tests.faults.trial import Record
from tests.support import released

ROOT = Path(__file__).parents[2]
MANY = 100  # sensors that each version registers
HANGING = {Suspicion.OVERRAN, Suspicion.SLOW}
DIED = "a holder died; the groups in its hands are poked apart"
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
    """The new class takes one more argument; sensors are registered with it when all workers have the class."""
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
    end(old)
    ids += [register(number, region="north") for number in range(20, 30)]
    for number in range(10, 30):
        land(tmp_path, f"g{number}")
    assert_all_landed(service, ids, record("44 rolling deploy of a changed class"))


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Builds the wheel of a commit, once, and returns the folder that it is unpacked in."""
    return cache(lambda commit: released.unpack(commit, tmp_path_factory.mktemp("version")))


def test_migration_under_load(
    unpacked: Callable[[str], Path],
    empty_database: str,
    redis_url: str,
    tmp_path: Path,
    record: Callable[[str], Record],
) -> None:
    """The version before runs during the upgrade of the schema, and is replaced process by process."""
    version_before = unpacked(released.before_newest_migration())
    service = Rollout(tmp_path, empty_database, redis_url)
    before = {"PYTHONPATH": str(version_before)}
    try:
        done = service.cli("db", "upgrade", **before)
        assert done.returncode == 0, done.stderr
        assert migrate.current(empty_database) != migrate.head()
        audit.install(service.pool.database)
        ids = service.register_by(version_before, range(20))
        old_worker, old_beat = service.worker(**before), service.beat(**before)
        until("pokes of all", lambda: len(pokes(tmp_path)) == 20)
        for number in range(5):
            land(tmp_path, f"g{number}")
        upgraded = service.cli("db", "upgrade")
        assert upgraded.returncode == 0, upgraded.stderr
        ids += service.register_by(version_before, range(20, 30))  # the version before, on the new schema
        for number in range(5, 10):
            land(tmp_path, f"g{number}")
        service.worker()
        ids += service.register(range(30, 40))
        until("pokes by both versions", lambda: len({p.pid for some in pokes(tmp_path).values() for p in some}) >= 3)
        for process in (old_beat, old_worker):
            end(process)
        service.beat()
        for number in range(10, 40):
            land(tmp_path, f"g{number}")
        assert_all_landed(service, ids, record("45 migration under load, versions N-1 and N at once"))
    finally:
        service.stop()


@pytest.fixture
def rollout(postgres_database: str, redis_url: str, tmp_path: Path) -> Iterator[Rollout]:
    """A service without processes, on today's tables."""
    service = Rollout(tmp_path, postgres_database, redis_url, sensors=(HANGS,))
    try:
        yield service
    finally:
        service.stop()


def test_the_first_release_beside_this_version(
    unpacked: Callable[[str], Path], rollout: Rollout, record: Callable[[str], Record]
) -> None:
    """Workers of both versions die with groups in flight, beside a hanging group: the other version takes them up."""
    folder, before = rollout.folder, unpacked(released.FIRST_RELEASE)
    audit.install(rollout.pool.database)
    ids = rollout.register_by(before, range(MANY)) + rollout.register(range(MANY, 2 * MANY))
    hanging = rollout.hang("h0")
    old, old_beat = rollout.worker_of(before), rollout.beat_of(before)
    until("pokes of all by the old version", lambda: len(pokes(folder)) == 2 * MANY)
    until("the hanging one, poked apart", lambda: rollout.why(hanging) in HANGING)

    new = rollout.worker_of(None)
    until("pokes by both", lambda: old.has_poked(folder) and new.has_poked(folder))
    _land(rollout, ids[::4], range(0, 2 * MANY, 4))
    rollout.kill_in_flight(old)
    until("the new version reads whom the old one died with", lambda: new.says(DIED))
    _let_land(rollout, "h0", hanging)
    _land(rollout, ids[1::4], range(1, 2 * MANY, 4))

    after = rollout.hang("h1")
    until("the hanging one, poked apart", lambda: rollout.why(after) in HANGING)
    end(old_beat)
    rollout.beat_of(None)
    old = rollout.worker_of(before)  # on today's tables from its start on
    until("pokes by both", lambda: old.has_poked(folder) and new.has_poked(folder))
    rollout.kill_in_flight(new)
    until("the old version reads whom the new one died with", lambda: old.says(DIED))
    _let_land(rollout, "h1", after)
    _land(rollout, ids, range(2 * MANY))
    assert_all_landed(rollout, [*ids, hanging.id, after.id], record("50 the first release beside this version"))


def _land(rollout: Rollout, ids: list[int], numbers: range) -> None:
    for number in numbers:
        land(rollout.folder, f"g{number}")
    assert set(rollout.pool.wait(ids, 60).values()) == {"success"}, rollout.logs()[-3000:]


def _let_land(rollout: Rollout, name: str, instance: Instance) -> None:
    """Let a hanging sensor land: the group is poked apart, settled, and taken back among the others."""
    land(rollout.folder, name)
    rollout.let_go(name)
    assert rollout.pool.wait([instance.id], 60) == {instance.id: "success"}, rollout.logs()[-3000:]
    until("no suspect", lambda: rollout.why(instance) is None)
