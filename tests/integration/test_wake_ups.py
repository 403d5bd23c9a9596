"""Wake-ups: conditions are poked at once, floods are merged, and nothing else changes."""

import json
import re
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from sqlalchemy import Connection, select

from harness.scripted import land, pokes
from harness.service import Service
from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.cli.main import main
from sensorpool.client import wake
from sensorpool.errors import Refused, Unreachable
from sensorpool.leases import waking
from sensorpool.leases.background_notes import Isolated
from sensorpool.leases.lease import leases_of
from sensorpool.model.states import State
from sensorpool.store.schema import sensor_instance
from sensorpool.worker.context import Worker

SENSOR = "harness.scripted.ScriptedSensor"
PATHS = "sensorpool.sensors.PathSensor"
HOUR = 3_600.0
TOKEN, WAKE_TOKEN = "the-token-of-the-pages", "the-token-of-wake-ups"


@pytest.fixture
def pool(make_pool: Callable[..., Pool], redis_url: str) -> Pool:
    return make_pool(redis_url=redis_url, sensors_enabled=[SENSOR, PATHS], shards=1, poke_interval=HOUR)


def some(pool: Pool, path: Path, /, **located: str) -> dict[str, int]:
    """Register conditions of an hour's interval at locations."""
    made = pool.register_many(
        {"sensor": SENSOR, "poke_context": {"folder": str(path), "name": name}, "location": where}
        for name, where in located.items()
    )
    return dict(zip(located, (each.id for each in made), strict=True))


def job(worker: Worker, pool: Pool) -> Any:
    return worker.run_job(pool.ranges[0], "us")


def poked(folder: Path) -> dict[str, int]:
    return {name: len(found) for name, found in pokes(folder).items()}


LOCATED = {
    "object": "s3://in/day=1/a.csv",
    "folder": "s3://in/day=1/",
    "bucket": "s3://in/",
    "other": "s3://in/day=2/a.csv",
    "percent": "s3://in/100%_/x",
}


@pytest.fixture
def waiting(pool: Pool, worker: Worker, tmp_path: Path) -> dict[str, int]:
    """Conditions that were poked once, and are due again in an hour."""
    found = some(pool, tmp_path, **LOCATED)
    job(worker, pool)
    assert poked(tmp_path) == dict.fromkeys(found, 1)
    return found


def test_a_place_names_what_waits_there(
    each_database: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Pool(Settings.load(database_url=each_database, redis_url=redis_url, sensors_enabled=SENSOR))
    names = {instance_id: name for name, instance_id in some(pool, tmp_path, **LOCATED).items()}
    groups = {group_id: names[row_id] for row_id, group_id in pool.database.read(_groups_of)}
    found: list[set[str]] = []

    def poke_soon(woken: Collection[Any]) -> int:
        found.append({groups[each.id] for each in woken})
        return 0

    monkeypatch.setattr(pool.nudger, "poke_soon", poke_soon)

    def woken(**named: str) -> set[str]:
        found[:] = [set()]
        assert pool.wake(**named) == len(found[-1])
        return found[-1]

    assert woken(location="s3://in/day=1/a.csv") == {"object", "folder", "bucket"}
    assert woken(location="s3a://in/day=1/b.csv") == {"folder", "bucket"}
    assert woken(location="s3://IN/day=1/a.csv") == set()
    assert woken(prefix="s3://in/day=1/") == {"object", "folder"}
    assert woken(prefix="s3://in/day") == {"object", "folder", "other"}
    assert woken(prefix="s3://in/100%") == {"percent"}
    assert woken(prefix="s3://in/100_") == set()
    assert woken(prefix="s3://in") == set(LOCATED)
    pool.close()


def _groups_of(connection: Connection) -> list[Any]:
    return list(connection.execute(select(sensor_instance.c.id, sensor_instance.c.group_id)))


def test_a_condition_is_woken_by_what_it_was_registered_with(
    pool: Pool, worker: Worker, tmp_path: Path, waiting: dict[str, int]
) -> None:
    context = {"name": "other", "folder": str(tmp_path)}
    land(tmp_path, "other")
    assert pool.wake(SENSOR, context) == 1
    assert pool.wake(SENSOR, context | {"name": "nothing"}) == 0
    assert pool.wake("no.such.Class", context) == 0
    job(worker, pool)
    assert pool.wait([waiting["other"]], 0) == {waiting["other"]: State.SUCCESS}
    assert pool.wait([waiting["object"]], 0) == {waiting["object"]: State.SENSING}


def test_what_is_not_true_yet_waits_on(pool: Pool, worker: Worker, tmp_path: Path, waiting: dict[str, int]) -> None:
    pool.wake(prefix="s3://in")
    job(worker, pool)
    assert set(pool.wait(waiting.values(), 0).values()) == {State.SENSING}
    job(worker, pool)
    assert set(poked(tmp_path).values()) == {2}


def test_a_flood_is_merged(pool: Pool, worker: Worker, tmp_path: Path, waiting: dict[str, int]) -> None:
    """A thousand wake-ups in a moment are one message for a worker, and one poke of each condition."""
    sent: list[Any] = []
    pool.outbox.nudge = lambda *each, **_: sent.append(each)  # type: ignore[method-assign]
    began = time.monotonic()
    for _ in range(100):
        pool.wake(prefix="s3://in/day=1/")
    assert len(sent) <= 1 + (time.monotonic() - began) / waking.GAP
    job(worker, pool)
    assert poked(tmp_path)["object"] == 2


def test_too_many_are_dropped_and_keep_their_turn(
    pool: Pool, worker: Worker, tmp_path: Path, waiting: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waking, "MOST", 2)
    context = {"folder": str(tmp_path), "name": "object"}
    assert [pool.wake(SENSOR, context) for _ in range(2)] == [1, 1], "what waits to be poked already is not dropped"
    assert pool.wake(prefix="s3://in") == 2
    job(worker, pool)
    assert sorted(poked(tmp_path).values()) == [1, 1, 1, 2, 2]
    monkeypatch.setattr(wake, "MOST", 3)
    monkeypatch.setattr(waking, "MOST", 100)
    named = [wake.wake_up(prefix=each) for each in ("s3://in/day=1/", "s3://in/day=2/", "s3://in/100%")]
    assert pool.wake_all(named) == 3, "of four"


def test_who_is_woken_after_a_job_is_looked_at_later(pool: Pool, worker: Worker, waiting: dict[str, int]) -> None:
    """The job that took wake-ups up sends the next one, if there are more by then; and not within a second."""
    [shard_range], nudged = pool.ranges, list[Any]()
    worker._later_jobs._nudge = nudged.append
    pool.wake(prefix="s3://in")
    job(worker, pool)
    worker._later_jobs._nudge_if_woken(shard_range)
    assert not nudged, "no group was woken meanwhile"
    pool.wake(prefix="s3://in/day=1/")
    worker._later_jobs._nudge_if_woken(shard_range)
    assert not nudged, "one was sent less than a second ago"
    until("another job", lambda: nudged, 30)
    assert nudged == [shard_range]


def test_a_mark_without_an_end_stops_no_wake_ups(pool: Pool, worker: Worker, waiting: dict[str, int]) -> None:
    client, key = pool.leases.store.client, pool.leases.store.key(pool.ranges[0], "nudged")
    client.set(key, "1")
    assert pool.wake(prefix="s3://in/day=1/") == 2
    assert 0 < client.pttl(key) <= 1_000


def test_a_wake_up_outlives_a_job_that_fails(
    pool: Pool, worker: Worker, tmp_path: Path, waiting: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.wake(prefix="s3://in/day=1/")
    with monkeypatch.context() as patched:
        patched.setattr(worker.database, "read", _away)
        with pytest.raises(Unreachable):
            job(worker, pool)
    job(worker, pool)
    assert poked(tmp_path)["object"] == 2


def _away(*_: object, **__: object) -> None:
    raise Unreachable("the database is away")


def test_who_is_poked_just_now_is_poked_again(
    pool: Pool, worker: Worker, tmp_path: Path, waiting: dict[str, int]
) -> None:
    """A poke that goes on outside of jobs may have looked before the wake-up."""
    groups = dict(map(tuple, pool.database.read(_groups_of)))
    elsewhere = leases_of(pool.settings)
    elsewhere.note_background(pool.ranges[0], [groups[waiting["object"]]], Isolated(), 60)
    pool.wake(prefix="s3://in/day=1/")
    job(worker, pool)
    assert poked(tmp_path)["folder"] == 2
    assert poked(tmp_path)["object"] == 1
    elsewhere.note_background(pool.ranges[0], [], Isolated(), 60)
    job(worker, pool)
    until("its poke", lambda: poked(tmp_path)["object"] == 2)


def test_a_path_has_a_location(pool: Pool, worker: Worker, tmp_path: Path) -> None:
    made = pool.register(PATHS, {"path": f"{tmp_path}/in/*.csv"})
    job(worker, pool)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").touch()
    assert pool.wake(location=f"file://{tmp_path}/in/a.csv") == 1
    job(worker, pool)
    assert pool.wait(made, 0) == {made.id: State.SUCCESS}


@pytest.mark.parametrize(
    "named",
    [{}, {"prefix": "s3://a", "location": "s3://a/"}, {"prefix": "/a"}, {"location": "a"}, {"poke_context": {}}],
)
def test_a_wake_up_that_names_nothing_is_refused(pool: Pool, named: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        pool.wake(**named)


def test_a_wrong_location_is_refused(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="location must be a URL"):
        some(pool, tmp_path, x="in/a.csv")


def test_standalone_takes_no_orders(make_pool: Callable[..., Pool]) -> None:
    with pytest.raises(Refused, match="standalone"):
        make_pool(redis_url="memory://", broker_url="").wake(prefix="s3://in/")


def test_the_command(service: Service, tmp_path: Path) -> None:
    environment = service.environment
    some(service.pool, tmp_path, object="s3://in/day=1/a.csv")
    event = {"detail-type": "Object Created", "detail": {"bucket": {"name": "in"}, "object": {"key": "day=1/a.csv"}}}
    events = tmp_path / "events.jsonl"
    events.write_text(f"{json.dumps(event)}\n\n{{}}\n{'x' * 600_000}\n7\n")

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(main, ["wake", *arguments], env=environment)

    assert json.loads(run("--prefix", "s3://in/", "--json").stdout) == {"woken": 1, "refused": []}
    told = run("--events", str(events))
    assert (told.exit_code, told.stdout) == (1, "1 condition is poked at once\n")
    assert [line.partition(": ")[0] for line in told.stderr.splitlines()] == ["line 3", "line 4", "line 5"]
    assert re.match(r"line 3: this is no event of a bucket", told.stderr)
    assert run().exit_code == run("--prefix", "in").exit_code == 2
    assert run(SENSOR, json.dumps({"folder": str(tmp_path), "name": "object"})).exit_code == 0
    assert "Traceback" not in run(SENSOR, "{").output


def test_an_event_settles_a_condition_long_before_its_interval(
    make_service: Callable[..., Service], tmp_path: Path
) -> None:
    service = make_service(web_token=TOKEN, wake_token=WAKE_TOKEN, poke_interval=HOUR)
    [instance_id] = some(service.pool, tmp_path, object="s3://in/a.csv").values()
    service.start()
    service.process("sensorpool", "web", "--port=0")
    address = str(until("the pages", lambda: re.search(r"http://127\.0\.0\.1:\d+/", service.logs()))[0])
    until("its first poke", lambda: pokes(tmp_path).get("object"))
    event = {
        "Records": [{"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "in"}, "object": {"key": "a.csv"}}}]
    }
    with httpx.Client(base_url=address) as client:
        for wrong in ({}, {"Authorization": f"Bearer {TOKEN}"}, {"Authorization": "Basic x"}):
            assert client.post("/wake", json=event, headers=wrong).status_code == 401
        known = {"Authorization": f"Bearer {WAKE_TOKEN}"}
        assert client.post("/wake", content="{", headers=known).status_code == 400
        assert client.post("/wake", content=b"x" * 300_000, headers=known).status_code == 400
        assert client.get("/", headers=known).status_code == 401  # who sends events does not see the pages
        land(tmp_path, "object")
        answer = client.post("/wake", json=event, auth=("sns", WAKE_TOKEN))
        assert (answer.status_code, answer.json()) == (200, {"woken": 1})
        assert service.pool.wait([instance_id], 60) == {instance_id: State.SUCCESS}  # long before the hour
        asks = {"Type": "SubscriptionConfirmation", "TopicArn": "arn:aws:sns:x:1:in", "Token": "2336412f37fb"}
        assert client.post("/wake", json=asks, headers=known).json() == {"woken": 0}
        until("what confirms it", lambda: re.search(r"arn:aws:sns:x:1:in.*2336412f37fb", service.logs()))
        googles = {"Authorization": "Bearer eyJhbGciOiJSUzI1NiJ9.e30.x"}
        assert client.post(f"/wake?token={WAKE_TOKEN}", json=event, headers=googles).json() == {"woken": 0}
    assert WAKE_TOKEN not in service.logs()


def test_without_a_token_there_is_no_such_address(make_service: Callable[..., Service]) -> None:
    service = make_service(web_token=TOKEN)
    service.process("sensorpool", "web", "--port=0")
    address = str(until("the pages", lambda: re.search(r"http://127\.0\.0\.1:\d+/", service.logs()))[0])
    assert httpx.post(f"{address}wake", json=[], auth=("x", "")).status_code in {404, 405}
