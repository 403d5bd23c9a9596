"""Fault 44: a rolling deployment of a changed sensor class."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from harness import audit
from harness.scripted import land, pokes
from harness.service import Service
from harness.until import until
from tests.faults.trial import Record

ROOT = Path(__file__).parents[2]
FLEET = """
from harness.scripted import ScriptedSensor

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
    old.send_signal(signal.SIGTERM)
    old.wait(60)
    ids += [register(number, region="north") for number in range(20, 30)]
    for number in range(10, 30):
        land(tmp_path, f"g{number}")
    states = service.pool.wait(ids, 60)
    found = audit.read(service.pool.database)
    record("44 rolling deploy of a changed class").add(
        sensors=len(ids),
        lost=sum(state == "sensing" for state in states.values()),
        doubled=len(found.doubled) + len(found.changed),
        wrong=sum(state not in {"sensing", "success"} for state in states.values()),
        recovery=[],
    )
    assert set(states.values()) == {"success"}, service.logs()[-3000:]
    assert found.is_clean, found
