"""A class that changes on disk is poked with its new code once the worker's children are of age."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.service import Service, children
from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.model.states import State
from sensorpool.worker import context
from sensorpool.worker.context import Worker

CODE = """
import os
class Company:
    def __init__(self, folder):
        self.folder = folder
    def poke(self, context):
        with open(os.path.join(self.folder, "said"), "a") as said:
            said.write(f"{version} {{os.getpid()}}\\n")
        return {landed}
"""


def test_a_module_that_changes_is_poked_with_its_new_code(make_service: Callable[..., Service], tmp_path: Path) -> None:
    module = tmp_path / "code" / "company_of_age.py"
    module.parent.mkdir()
    module.write_text(CODE.format(version="old", landed=False))
    service = make_service(sensors_enabled="company_of_age.Company", child_max_age=3, shards=2)
    [waiting] = service.pool.register_many(
        [{"sensor": "company_of_age.Company", "poke_context": {"folder": str(tmp_path)}}], try_out=False
    )
    service.worker(concurrency=1, PYTHONPATH=os.pathsep.join([str(module.parent), os.environ.get("PYTHONPATH", "")]))
    service.beat()
    until("a poke", (tmp_path / "said").exists)
    before = {child.pid for child in children(service.processes[0])}
    module.write_text(CODE.format(version="newer", landed=True))
    assert service.pool.wait([waiting.id], 60) == {waiting.id: State.SUCCESS}
    said = [line.split() for line in (tmp_path / "said").read_text().splitlines()]
    assert [version for version, _ in said] == ["old"] * (len(said) - 1) + ["newer"]
    assert int(said[-1][1]) not in before
    assert service.processes[0].poll() is None


def test_children_come_of_age_one_after_the_other_and_not_in_the_middle_of_a_poke(
    make_pool: Callable[..., Pool], make_worker: Callable[[Settings], Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(context, "time", SimpleNamespace(monotonic=lambda: now))
    made = [make_worker(make_pool(child_max_age=1_000).settings) for _ in range(8)]
    worn_at: dict[int, float] = {}
    made[0].background._waits[0] = None  # type: ignore[assignment]
    for now in range(0, 1_100, 5):
        for number, each in enumerate(made):
            if each.wears_out():
                worn_at.setdefault(number, now)
    made[0].background._waits.clear()
    assert worn_at.pop(0) == 1_005, "at the latest"
    assert len(worn_at) == 7
    assert all(500 <= at <= 905 for at in worn_at.values())
    assert max(worn_at.values()) - min(worn_at.values()) > 20
