"""Threat: somebody else may write to our Redis."""

import base64
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from redis.exceptions import ResponseError

from harness import audit
from harness.scripted import land, pokes
from harness.service import Service
from harness.until import until
from sensorpool.model.states import State
from sensorpool.publish import wire
from tests.integration.test_main_run import register
from tests.security.canary import MODULE, Canary
from tests.security.planting import rows

GROUPS = 12
FORGED = 1_000
STEADY = ("id", "state", "reason", "ending", "settled_at", "group_id", "timeout_at", "xcom_value", "next_deadline")
QUEUES = ("sensorpool:sensorpool", "sensorpool:sensorpool\x06\x163", "sensorpool:celery")


def test_forged_messages_and_keys_change_nothing(
    make_service: Callable[..., Service], canary: Canary, rng: random.Random, tmp_path: Path
) -> None:
    """Threat `open Redis`: a thousand forged messages and keys of every kind; no import, no state change."""
    service = make_service()
    ids = register(service, tmp_path, count=2 * GROUPS, groups=GROUPS)
    service.start(workers=2, **canary.environment)
    until("pokes of all", lambda: len(pokes(tmp_path)) == GROUPS)
    before = steady(service)
    group_ids = [row["group_id"] for row in rows(service.pool.database).values()]
    client = service.pool.leases.store.client
    for forge in attack(rng, service, group_ids, canary):
        with suppress(ResponseError):  # an earlier one left another type there
            together(client, forge)
    at = max(poke.at for some in pokes(tmp_path).values() for poke in some)
    # nothing was due twice in less than an interval but for what Redis lost: two more rounds of everybody
    until("two rounds after the attack", lambda: all(len(since(some, at)) > 1 for some in pokes(tmp_path).values()))
    assert steady(service) == before
    assert canary.is_untouched
    assert [process.poll() for process in service.processes] == [None] * len(service.processes)
    assert service.cli("status").returncode == 0
    assert service.cli("show", str(ids[0])).returncode == 0
    until("a healthy pool", lambda: service.cli("health").returncode == 0)
    for number in range(GROUPS):
        land(tmp_path, f"g{number}")
    assert set(service.pool.wait(ids, 60).values()) == {State.SUCCESS}
    assert audit.read(service.pool.database).is_clean


def test_forged_flags_and_notes_end(make_service: Callable[..., Service], tmp_path: Path) -> None:
    """Threat `open Redis`: a dirty flag without an end, and notes that say that all is poked elsewhere."""
    service = make_service(lease_ttl=2.5)
    ids = register(service, tmp_path, count=GROUPS, groups=GROUPS)
    client, until_then = service.pool.leases.store.client, round(time.time() * 1000) + 3_000
    for shard_range in service.pool.ranges:
        client.set(f"sensorpool:{{{shard_range}}}:dirty", "forged")
    for row in rows(service.pool.database).values():
        name = f"sensorpool:{{{service.pool.range_of(row['shardcode'])}}}:"
        client.hset(f"{name}background", "forged", "forged")
        client.hset(f"{name}background", str(row["group_id"]), f"{until_then} [[{row['group_id']}], [[], 0, 0, 0]]")
    for number in range(GROUPS):
        land(tmp_path, f"g{number}")
    service.start()
    assert set(service.pool.wait(ids, 60).values()) == {State.SUCCESS}


def test_forged_ranges_leave_nothing_behind_for_ever(service: Service) -> None:
    """Threat `open Redis`: a range that no worker has is never worked on; it is noted for a minute."""
    service.start()
    client = service.pool.leases.store.client
    client.lpush(QUEUES[0], message(wire.POKE_SHARD, [1, 2]))
    noted = until("the note of the forged range", lambda: next(iter(client.keys("sensorpool:{pool}:foreign")), None))
    assert client.get(noted) == "1-2"
    assert 0 < client.ttl(noted) <= 60
    assert client.keys("sensorpool:{1-2}:*") == []


def steady(service: Service) -> dict[int, dict[str, Any]]:
    return {i: {name: row[name] for name in STEADY} for i, row in rows(service.pool.database).items()}


def since(some: list[Any], at: float) -> list[Any]:
    return [poke for poke in some if poke.at > at]


def together(client: Any, act: Callable[[Any], object]) -> None:
    """Send commands as one: the pool makes no key between a deletion and what comes into its place."""
    with client.pipeline(transaction=True) as pipeline:
        act(pipeline)
        pipeline.execute()


def message(task: object, args: object, headers: Any = None, spoilt: Any = None) -> str:
    """A message as kombu writes it, with whatever is to be wrong with it."""
    body = base64.b64encode(json.dumps([args, {}, {"callbacks": None}]).encode()).decode()
    properties = {
        "delivery_tag": str(random.random()),
        "delivery_info": {"exchange": "", "routing_key": wire.QUEUE},
        "delivery_mode": 2,
        "body_encoding": "base64",
        "priority": 0,
    }
    return json.dumps(
        {
            "body": body,
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {"task": task, "id": "forged", "lang": "py", "root_id": "forged", **(headers or {})},
            "properties": properties,
        }
        | (spoilt or {})
    )


def attack(
    rng: random.Random, service: Service, group_ids: list[int], canary: Canary
) -> Iterator[Callable[[Any], Any]]:
    """A thousand forgeries, each to be done to a client."""
    absurd = [
        0,
        -1,
        1,
        7,
        10**6,
        2**31,
        2**63,
        2**64,
        10**30,
        -(10**30),
        1e308,
        "x",
        None,
        True,
        [],
        {},
        [[]],
        f"{MODULE}.Canary",
    ]
    texts = ["", "garbage", "[]", "{}", "null", "7", "[" * 5_000, b"\xff\xfe\x00", "\x1b[2J", f"{MODULE}.Canary", "NaN"]
    wild = [{"eta": "soon"}, {"expires": []}, {"retries": "x"}, {"timelimit": 7}, {"argsrepr": 7}, {"id": None}]
    wild += [{"task": None}, {"task": []}, {"task": f"{MODULE}.Canary"}, {"compression": "zlib"}, {"group": {}}]
    spoilt = [{"properties": {}}, {"properties": 7}, {"body": 7}, {"body": "!"}, {"content-type": []}, {"headers": []}]
    spoilt += [{"content-encoding": "zip"}, {"content-type": "application/x-python-serialize"}, {"headers": None}]

    def some(choices: list[Any]) -> Any:
        return choices[rng.randrange(len(choices))]

    def state() -> str:
        fields = ("last", "recent", "left", "holder", "groups", "pokes", "lag_ms", "seconds")
        ids = {"recent": [*group_ids, 10**30], "left": {str(each): some(absurd) for each in group_ids}}
        return json.dumps({name: some([*absurd, ids.get(name)]) for name in fields if rng.random() < 0.7})

    def settled() -> str:
        ending = {
            "id": some([*group_ids, *absurd]),
            "dag_id": some(["dag_0", *absurd]),
            "state": some(["success", "failed"]),
        }
        body = base64.b64encode(json.dumps({"settled": [ending]}).encode()).decode()
        return message("x", [], spoilt={"body": body})

    def forge(kind: int) -> Callable[[Any], Any]:
        text, ranges = some(texts), [some(absurd), some(absurd)]
        prefix = f"sensorpool:{{{some(service.pool.ranges)}}}:"
        match kind:
            case 0:
                return lambda c: c.lpush(some(list(QUEUES)), text)
            case 1:
                return lambda c: c.lpush(QUEUES[0], message(wire.POKE_SHARD, ranges))
            case 2:
                return lambda c: c.lpush(
                    QUEUES[0], message(wire.POKE_SHARD, [0, 2500], some(wild), some([{}, *spoilt]))
                )
            case 3:
                return lambda c: c.lpush(
                    QUEUES[0], message(some(["os.system", f"{MODULE}.Canary", 7]), [canary.command])
                )
            case 4:
                return lambda c: c.set(f"{prefix}state", some([state(), text]))
            case 5:
                return lambda c: c.set(f"{prefix}note", some([json.dumps(group_ids), json.dumps(absurd[:-5]), text]))
            case 6:
                note = f"7 [[{some(group_ids)}], [[], 0, 0, 0]]"
                return lambda c: c.hset(f"{prefix}background", str(some(absurd)), some([text, note]))
            case 7:
                record = json.dumps([some(absurd), "abc", [some(absurd)] * 3, group_ids[:3], {"0": some(absurd)}])
                return lambda c: (c.delete(f"{prefix}pokes"), c.zadd(f"{prefix}pokes", {some([record, text]): 1e300}))
            case _:
                topic = f"sensorpool:sensorpool.results.{rng.randrange(9)}"
                return lambda c: (c.delete(topic), c.lpush(topic, settled()))

    for number in range(FORGED):
        yield forge(number % 9)
