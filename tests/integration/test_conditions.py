"""Lists of conditions, on each kind of database."""

from collections.abc import Iterator

import pytest
from sqlalchemy import update

from sensorpool import Pool, Settings
from sensorpool.admin import actions
from sensorpool.admin.conditions import condition, list_conditions
from sensorpool.admin.instances import show
from sensorpool.admin.status import overview
from sensorpool.errors import SensorpoolError
from sensorpool.store import action_log as records
from sensorpool.store import conditions
from sensorpool.store.conditions import Order, Wanted
from sensorpool.store.schema import poke_group

PATH = "sensorpool.sensors.PathSensor"


@pytest.fixture
def pool(each_database: str) -> Iterator[Pool]:
    """A pool in which `a` waits once, `b` twice, and `c` three times, each for a condition of its own."""
    pool = Pool(Settings.load(database_url=each_database))
    for count, name in enumerate("abc", 1):
        for number in range(count):
            pool.register(PATH, {"path": f"/{name}"}, dag_id=name, task_id=f"t{number}", run_id="r", poke_interval=10.0)
    yield pool
    pool.close()


def listed(pool: Pool, wanted: Wanted, order: Order = Order.WAITERS, first: int = 0, most: int = 10) -> list[str]:
    """Return the paths of a page."""
    found = list_conditions(pool, wanted, order, first, most, outcome=None, seen=None)
    assert found["count"] >= len(found["conditions"])
    return [each["poke_context"]["path"] for each in found["conditions"]]


def test_each_order_and_each_filter(pool: Pool) -> None:
    assert listed(pool, Wanted()) == ["/c", "/b", "/a"]
    assert listed(pool, Wanted(), Order.AGE) == listed(pool, Wanted(), Order.DEADLINE) == ["/a", "/b", "/c"]
    assert listed(pool, Wanted(), first=1, most=1) == ["/b"]
    assert listed(pool, Wanted(dag_ids=["a", "b", "x"])) == ["/b", "/a"]
    assert listed(pool, Wanted(dag_ids=[])) == []
    assert listed(pool, Wanted(op_classpath=PATH.upper())) == []
    for odd in (Wanted(dag_ids=["a\0"]), Wanted(op_classpath="\0"), Wanted(backend="\0")):
        assert listed(pool, odd) == []
    assert listed(pool, Wanted(backend="\0")) == []  # some databases cannot look for it
    [of_b] = list_conditions(pool, Wanted(dag_ids=["b"]), Order.AGE, 0, 10, outcome=None, seen=["b"])["conditions"]
    with pool.database.engine.begin() as connection:
        connection.execute(update(poke_group).where(poke_group.c.id == of_b["id"]).values(late_since=1, backend="s3"))
    assert listed(pool, Wanted(late=True)) == listed(pool, Wanted(backend="s3")) == ["/b"]
    assert listed(pool, Wanted(), Order.LATENESS)[0] == "/b"


def test_who_waits_is_named_to_who_may_see_it(pool: Pool) -> None:
    every = {each["poke_context"]["path"]: each for each in _all(pool, None)}
    assert [every[path]["waiter"]["task_id"] for path in ("/a", "/b", "/c")] == ["t0"] * 3
    assert {each["waiter"]["dag_id"] for each in _all(pool, ["a"])} == {"a"}, "others are not listed"
    shown = condition(pool, every["/c"]["id"], ["a"])
    assert (shown["members"], shown["waiters"]) == (3, [])
    assert [each["task_id"] for each in condition(pool, every["/c"]["id"], None)["waiters"]] == ["t0", "t1", "t2"]


def _all(pool: Pool, seen: list[str] | None) -> list[dict]:  # type: ignore[type-arg]
    return list(list_conditions(pool, Wanted(), Order.AGE, 0, 10, outcome=None, seen=seen)["conditions"])


def _register(pool: Pool, timeouts: dict[str, float], **more: object) -> int:
    """Have a task of each DAG wait for one condition, which is due a day from now, but for deadlines; return its id."""
    day = 86_400.0
    for dag_id, timeout in timeouts.items():
        key = {"dag_id": dag_id, "task_id": "t", "run_id": "next"}
        made = pool.register(PATH, {"path": "/next"}, **key, timeout=timeout, **{"poke_interval": day} | more)
    now = pool.database.read(pool.database.now)
    interval = round(day * 1000)
    far = {"registered_at": 1, "phase": interval - now % interval, "poke_interval": interval}
    with pool.database.engine.begin() as connection:
        connection.execute(update(poke_group).where(poke_group.c.id == made.group_id).values(**far))
    return made.group_id


def test_the_next_poke_tells_no_deadline_of_a_dag_that_may_not_be_seen(pool: Pool) -> None:
    group_id = _register(pool, {"a": 7_200, "b": 3_600})
    by = {str(seen): condition(pool, group_id, seen) for seen in (None, ["a"], ["b"], ["a", "b"])}
    assert {seen: shown["next_poke_because"] for seen, shown in by.items()} == {
        "None": "a member's deadline comes: one poke before a timeout",
        "['a']": "every 86400 s",
        "['b']": "a member's deadline comes: one poke before a timeout",
        "['a', 'b']": "a member's deadline comes: one poke before a timeout",
    }
    of_b = by["['b']"]["waiters"][0]["timeout_at"]
    assert {seen: shown["next_poke_at"] == of_b for seen, shown in by.items()} == {seen: seen != "['a']" for seen in by}
    assert by["None"]["next_deadline"] == of_b
    of_a = by["['a']"]["waiters"][0]["id"]
    assert show(pool, of_a)["next_poke_at"] == of_b
    assert show(pool, of_a, of_others=False)["next_poke_because"] == "every 86400 s"
    assert condition(pool, group_id, ["a"], all_dates=True)["next_poke_at"] == of_b


def test_the_growth_of_a_backoff_is_no_deadline(pool: Pool) -> None:
    group_id = _register(pool, {"a": 7_200}, exponential_backoff=True, poke_interval=10.0)
    shown = condition(pool, group_id, None)
    assert shown["next_poke_because"] == "the step of a member's exponential_backoff grows then"
    assert shown["next_deadline"] == shown["waiters"][0]["timeout_at"] > shown["next_poke_at"]
    assert condition(pool, group_id, ["a"])["next_poke_because"] == "every 86400 s"


def test_the_load_is_that_of_the_intervals(pool: Pool) -> None:
    load = pool.database.read(conditions.load)
    assert (load.pokes, load.without) == pytest.approx((0.3, 0.6))
    found = overview(pool, None)
    assert found["status"]["sensing"] == 6


def test_actions_are_recorded_and_pruned(pool: Pool) -> None:
    actions.cancel(pool, 1, "ann\u202e")
    with pytest.raises(SensorpoolError):
        actions.cancel(pool, 1, "ann")
    with pytest.raises(SensorpoolError):
        actions.hand_back(pool, 2, "ann")
    [done] = actions.recorded(pool, None, 10)
    assert (done["what"], done["outcome"]) == ("cancel", "it is cancelled")
    assert "\u202e" not in done["who"]
    assert actions.recorded(pool, done["id"], 10) == []
    later = pool.database.read(pool.database.now) + 1_000_000
    assert pool.database.run(records.prune, later, 10) == 1
    assert actions.recorded(pool, None, 10) == []
