"""The main run: many sensors on fewer conditions, prefork workers, two beats, PostgreSQL and Redis."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from harness import audit
from harness.scripted import land, pokes
from harness.service import Service
from harness.until import until
from sensorpool.model.states import State
from sensorpool.publish import listen

GROUPS, SENSORS = 120, 200
SCRIPTED = "harness.scripted.ScriptedSensor"


def register(service: Service, folder: Path, count: int = SENSORS, groups: int = GROUPS, **more: object) -> list[int]:
    """Register sensors, evenly over the groups; return the instance ids."""
    instances = service.pool.register_many(
        {
            "sensor": SCRIPTED,
            "poke_context": {"folder": str(folder), "name": f"g{number % groups}"},
            "dag_id": f"dag_{number % 3}",
            "task_id": f"wait_{number}",
            "run_id": "r",
            **more,
        }
        for number in range(count)
    )
    return [instance.id for instance in instances]


def slots_poked_twice(service: Service, folder: Path) -> int:
    """Count pokes that came within less than an interval of the one before, by more than a tick's jitter."""
    interval, tick = service.settings.poke_interval, service.settings.tick
    early = 0
    for some in pokes(folder).values():
        # the first poke comes at registration, the second with the next period: whole intervals from there on
        times = [poke.at for poke in some[1:]]
        early += sum(1 for first, second in pairwise(times) if second - first < interval - tick - 0.5)
    return early


def test_everything_that_lands_is_settled_once_and_told(make_service: Callable[..., Service], tmp_path: Path) -> None:
    service = make_service(poke_interval=4.0)
    ids = register(service, tmp_path)
    service.start(workers=2)
    service.beat()  # two beats
    until(
        "four pokes of every group",
        lambda: min(map(len, pokes(tmp_path).values())) > 3 and len(pokes(tmp_path)) == GROUPS,
    )
    heard: dict[int, str] = {}
    with listen(service.settings) as bodies:
        for number in range(GROUPS):
            land(tmp_path, f"g{number}")
        states = service.pool.wait(ids, 60)
        assert set(states.values()) == {State.SUCCESS}
        for body in bodies:
            heard.update({each["id"]: each["state"] for each in body["settled"]})
            if len(heard) == SENSORS:
                break
    assert set(heard.values()) == {"success"}
    assert audit.read(service.pool.database).is_clean
    assert slots_poked_twice(service, tmp_path) == 0
    status = service.json("status")
    assert status["sensing"] == status["groups"] == 0
    assert status["states"]["success"] == SENSORS
    assert all(r["last_tick_at"] for r in status["ranges"])
    assert service.cli("health").returncode == 0


def test_a_new_condition_is_poked_within_a_second_and_not_a_tick(
    make_service: Callable[..., Service], tmp_path: Path
) -> None:
    service = make_service(tick=20.0, poke_interval=20.0, lease_ttl=30.0)
    service.start()
    # every range has just had its tick; the next one is 20 s away
    instance = service.pool.register(SCRIPTED, {"folder": str(tmp_path), "name": "new"})
    until("the first poke", lambda: pokes(tmp_path).get("new"), patience=8)
    shown = until("its record", lambda: (s := service.json("show", str(instance.id)))["last_outcome"] and s)
    assert (shown["last_outcome"], shown["members"], shown["state"]) == ("not_landed", 1, "sensing")
    assert shown["next_poke_at"] > shown["last_poke_at"]


def test_outcomes_end_instances_as_in_airflow(service: Service, tmp_path: Path) -> None:
    folder = str(tmp_path)

    def wait_for(script: str, **options: object) -> int:
        context = {"folder": folder, "name": f"{script}-{json.dumps(options)}", "script": script}
        return service.pool.register(SCRIPTED, context, **options).id  # type: ignore[arg-type]

    expected = {
        wait_for("raise"): "failed",
        wait_for("raise", soft_fail=True): "failed",
        wait_for("raise", never_fail=True): "skipped",
        wait_for("skip"): "skipped",
        wait_for("fail"): "failed",
        wait_for("fail", soft_fail=True): "skipped",
        wait_for("wait", timeout=1.0): "failed",
        wait_for("wait", timeout=1.0, soft_fail=True): "skipped",
        wait_for("raise", timeout=4.0, silent_fail=True): "failed",
        wait_for("infra", timeout=4.0): "failed",
        wait_for("wait", timeout=60.0, execution_timeout=1.0, soft_fail=True): "failed",
    }
    service.start()
    states = service.pool.wait(expected, 60)
    assert {instance_id: str(state) for instance_id, state in states.items()} == expected
    assert audit.read(service.pool.database).is_clean
    reasons = {row["id"]: row["reason"] for row in service.json("list")}
    assert all(reasons.values())
    assert "ValueError" in reasons[min(expected)]


def test_a_timeout_comes_after_a_poke_that_found_nothing(service: Service, tmp_path: Path) -> None:
    instance = service.pool.register(SCRIPTED, {"folder": str(tmp_path), "name": "late"}, timeout=0.5)
    until(
        "the deadline",
        lambda: service.pool.database.read(service.pool.database.now) > _timeout_at(service, instance.id),
    )
    land(tmp_path, "late")  # it landed after its deadline, but before a job looked: one poke comes first
    service.start()
    assert service.pool.wait([instance.id], 30) == {instance.id: State.SUCCESS}


def _timeout_at(service: Service, instance_id: int) -> int:
    from sensorpool.store import inspecting

    row = service.pool.database.read(inspecting.instance, instance_id)
    assert row is not None
    return int(row["timeout_at"])
