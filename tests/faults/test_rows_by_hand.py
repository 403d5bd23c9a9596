"""Faults 36-40: contexts that no database should hold, rows that were edited by hand, classes that do not exist.

A registration of them is refused with one clear line; a row edited by hand fails with a reason; no instance is stuck,
and no two contexts ever share a poke.
"""

import json
import math
from typing import Any

import pytest

from harness.scripted import land, pokes
from harness.service import children, kill_tree
from harness.until import until
from sensorpool.errors import Refused
from sensorpool.model.identity import Identity, identify
from tests.faults.stand import Stand
from tests.faults.trial import SENSOR


def nested(depth: int) -> Any:
    """Return a context that is nested so deeply."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return {"folder": "f", "name": value}


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ({"folder": "f", "name": "x" * 2**20}, "bytes; 65,536 are allowed|more than 65,536 bytes"),
        (nested(2_000), "nested deeper than 32 levels"),
        ({"folder": "f", "name": math.nan}, "nan, which JSON cannot say"),
        ({"folder": "f", "name": "a\x00b"}, "NUL"),
        ({"folder": "f", "name": "\ud800"}, "lone surrogate"),
        ({"folder": "f", "name": 10**5_000}, "more than 64 bits"),
    ],
    ids=["1 MB", "depth 2,000", "NaN", "NUL", "lone surrogate", "5,000 digits"],
)
def test_hostile_contexts_are_refused(stand: Stand, context: Any, said: str) -> None:
    with pytest.raises(Refused, match=said) as refused:
        stand.service.pool.register(SENSOR, context)
    assert len(str(refused.value).splitlines()) == 1


def test_duplicate_keys_are_refused(stand: Stand) -> None:
    done = stand.service.cli("register", SENSOR, '{"folder": "f", "name": "a", "name": "b"}')
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "names the key 'name' twice" in done.stderr


BY_HAND = {
    "no JSON": ("poke_context", "{", "JSONDecodeError"),
    "depth 2,000": ("poke_context", json.dumps({"folder": [0]}).replace("0", "[" * 20_000), "RecursionError|JSON"),
    "no object": ("poke_context", "[1]", "TypeError"),
    "an argument more": ("poke_context", '{"folder": "f", "name": "n", "evil": 1}', "evil"),
    "a class that is missing": ("op_classpath", "harness.scripted.Missing", "is not enabled|has no class"),
    "a class that is not listed": ("op_classpath", "os.system", "is not enabled"),
    "a module that is missing": ("op_classpath", "no.such.Thing", "is not enabled"),
    "no class path": ("op_classpath", "__import__('os')", "is not a class path"),
}


def test_rows_changed_by_hand_fail_with_a_reason(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are changed before a worker has loaded them: a worker caches its groups, whose contexts never change."""
    service = stand.service
    kill_tree(stand.workers.pop())
    kill_tree(stand.beats.pop())
    made = {
        what: service.pool.register(SENSOR, {"folder": str(service.folder), "name": f"hand {what}"}) for what in BY_HAND
    }
    for what, (column, text, _) in BY_HAND.items():
        escaped = text.replace("'", "''").replace(":", "\\:")
        stand.sql(f"UPDATE poke_group SET {column} = '{escaped}' WHERE id = {made[what].group_id}")
    # a group that another worker might poke is left to it for the window, so the window is short
    monkeypatch.setitem(service.environment, "SENSORPOOL_INFRA_FAILURE_WINDOW", "3")
    trial_of_others = service.pool.register(SENSOR, {"folder": str(service.folder), "name": "untouched"})
    stand.start()
    states = service.pool.wait([instance.id for instance in made.values()], 60)
    assert set(states.values()) == {"failed"}
    for what, (_, _, said) in BY_HAND.items():
        reason = service.json("show", str(made[what].id))["reason"]
        assert any(part in reason for part in said.split("|")), (what, reason)
    assert not pokes(service.folder).get("hand no JSON")
    until("a poke of the other", lambda: pokes(service.folder).get("untouched"))
    service.pool.cancel(trial_of_others.id)


def test_a_worker_that_cannot_poke_a_class_costs_its_sensors_nothing(stand: Stand) -> None:
    """Fault 39: beside a sound worker runs one with an old allowlist. Which of them takes a job is left to chance."""
    service = stand.service
    odd = stand.add_worker(SENSORPOOL_SENSORS_ENABLED="sensorpool.sensors.TimeSensor")
    trial = stand.trial("39 a worker with an old allowlist beside a sound one", groups=40, sensors=80)
    with trial.fault():
        log = service.folder / f"worker-{service.processes.index(odd)}.log"

        def has_met_it() -> bool:
            for shard_range in service.pool.ranges:  # one message a tick may always find the sound worker
                service.pool.publisher.nudge(shard_range)
            return "a class cannot be poked here" in log.read_text()

        until("it to meet the class", has_met_it)
        trial.wait_for_pokes(5)
    trial.end()
    lines = [line for line in log.read_text().splitlines() if "a class cannot be poked here" in line]
    lines = [line for line in lines if SENSOR in line]
    assert 1 <= len(lines) <= 2, "a line for each child that met it"
    assert {poke.pid for some in trial.pokes().values() for poke in some}.isdisjoint(
        child.pid for child in children(odd)
    )
    stand.workers.remove(odd)
    kill_tree(odd)


@pytest.mark.parametrize("text", ["{", "[" * 20_000, "[1]"], ids=["no JSON", "depth 20,000", "no object"])
def test_commands_about_an_instance_that_was_changed_by_hand(stand: Stand, text: str) -> None:
    """They show the row as it is."""
    service = stand.service
    made = service.pool.register(SENSOR, {"folder": str(service.folder), "name": f"spoilt {len(text)}"})
    stand.sql(f"UPDATE sensor_instance SET poke_context = '{text}' WHERE id = {made.id}")
    shown = service.json("show", str(made.id))
    assert shown["poke_context"] in (text, [1])
    assert shown["quarantined"] is None
    service.pool.cancel(made.id)


def test_contexts_with_the_same_hashcode_share_no_poke(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault 40, with a hash of eight bits: a hundred conditions, of which each lands by itself."""

    def poor(op_classpath: str, poke_context: object) -> Identity:
        whole = identify(op_classpath, poke_context)
        return whole._replace(hashcode=whole.digest[0] % 8, phase=0)

    monkeypatch.setattr("sensorpool.client.validate.identify", poor)
    pool, folder = stand.service.pool, stand.service.folder
    made = pool.register_many(
        {"sensor": SENSOR, "poke_context": {"folder": str(folder), "name": f"same{n}"}} for n in range(100)
    )
    assert len({instance.group_id for instance in made}) == 100
    assert len({instance.hashcode for instance in made}) <= 8
    for number in range(0, 100, 2):
        land(folder, f"same{number}")
    assert set(pool.wait([instance.id for instance in made[::2]], 60).values()) == {"success"}
    assert set(pool.wait([instance.id for instance in made[1::2]], 0).values()) == {"sensing"}
    for instance in made[1::2]:
        pool.cancel(instance.id)


def test_a_digest_that_is_there_for_another_context_is_refused(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = stand.service.pool
    first = identify(SENSOR, {"folder": "f", "name": "one"})
    kept = pool.register(SENSOR, {"folder": "f", "name": "one"})
    monkeypatch.setattr(
        "sensorpool.client.validate.identify",
        lambda path, context: identify(path, context)._replace(digest=first.digest),
    )
    with pytest.raises(Refused, match="one digest; they cannot share a group"):
        pool.register(SENSOR, {"folder": "f", "name": "two"})
    pool.cancel(kept.id)
