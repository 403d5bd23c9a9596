"""Registration on real databases: identity, idempotence, conflicts, races."""

import json
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import event, text

from harness.scripted import ScriptedSensor
from harness.service import SCRIPTED as NAMES
from sensorpool import Key, Pool, Registration, Settings
from sensorpool.errors import KeyConflict, Refused, SchemaMismatch
from sensorpool.model.states import Outcome, State
from sensorpool.model.values import Fact
from sensorpool.settle.flush import flush
from sensorpool.store import inspecting, loading
from sensorpool.store.inspecting import Selection
from sensorpool.store.migrate import upgrade

pytestmark = pytest.mark.processes

SCRIPTED = "harness.scripted.ScriptedSensor"
ENABLED = ",".join(f"harness.scripted.{name}" for name in NAMES) + ",sensorpool.sensors.HttpSensor"


@pytest.fixture(params=["sqlite", "postgres", pytest.param("mariadb", marks=pytest.mark.mariadb)])
def pool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pool]:
    """A pool on each kind of database."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'pool.db'}"
        upgrade(url)
    elif request.param == "postgres":
        url = request.getfixturevalue("postgres_database")
    else:
        url = request.getfixturevalue("mariadb_database")
        upgrade(url)
    made = Pool(Settings.load(database_url=url, sensors_enabled=ENABLED, on_settled_tasks="theirs.go_on"))
    yield made
    made.close()


def context(name: str) -> dict[str, str]:
    return {"folder": "/nowhere", "name": name}


def one(pool: Pool, name: str = "x", **key: object) -> int:
    named = {"dag_id": "d", "task_id": "t", "run_id": "r"} | key
    return pool.register(SCRIPTED, context(name), **named).id  # type: ignore[arg-type]


def test_the_same_key_try_and_context_is_the_same_instance(pool: Pool) -> None:
    first = pool.register(SCRIPTED, context("x"), dag_id="d", task_id="t", run_id="r")
    again = pool.register(
        "harness.scripted:ScriptedSensor", {"name": "x", "folder": "/nowhere"}, dag_id="d", task_id="t", run_id="r"
    )
    assert (first.id, first.created, again.created) == (again.id, True, False)
    assert pool.database.read(inspecting.count_waiting) == (1, 1)


def test_after_its_end_the_same_registration_opens_nothing(pool: Pool) -> None:
    first = one(pool)
    pool.cancel(first)
    again = pool.register(SCRIPTED, context("x"), dag_id="d", task_id="t", run_id="r")
    assert (again.id, again.state) == (first, State.CANCELLED)
    assert pool.database.read(inspecting.count_waiting) == (0, 0)


def test_another_context_or_a_lower_try_is_refused_and_nothing_is_kept(pool: Pool) -> None:
    one(pool, try_number=2)
    with pytest.raises(KeyConflict, match="waiting for something else"):
        one(pool, "y", try_number=2)
    with pytest.raises(KeyConflict, match="comes too late"):
        one(pool, try_number=1)
    assert pool.database.read(inspecting.count_waiting) == (1, 1)


def test_a_higher_try_cancels_the_lower_ones(pool: Pool) -> None:
    lower, other = one(pool, try_number=1), one(pool, task_id="other")
    higher = one(pool, "y", try_number=2)
    assert pool.wait([lower, higher, other], 0) == {
        lower: State.CANCELLED,
        higher: State.SENSING,
        other: State.SENSING,
    }
    assert pool.database.read(inspecting.count_waiting) == (2, 2)


def test_who_leaves_a_group_takes_nothing_but_their_own(pool: Pool) -> None:
    """The group takes step, deadline and count of its remaining members; other groups do not change."""
    stays = pool.register(SCRIPTED, context("x"), poke_interval=50, timeout=1000)
    leaves = pool.register(SCRIPTED, context("x"), poke_interval=20, timeout=500)
    pool.register(SCRIPTED, context("other"), poke_interval=5, timeout=10)
    group = pool.database.read(inspecting.group, stays.group_id)
    assert (group["poke_interval"], group["members"], group["version"]) == (20_000, 2, 2)
    pool.cancel(leaves.id)
    group = pool.database.read(inspecting.group, stays.group_id)
    instance = pool.database.read(inspecting.instance, stays.id)
    assert (group["poke_interval"], group["members"]) == (50_000, 1)
    assert group["next_deadline"] == instance["timeout_at"]


def test_an_object_is_its_class_and_its_context(pool: Pool) -> None:
    given = pool.register(ScriptedSensor("/nowhere", "x", script="wait"))
    spelled = pool.register(SCRIPTED, context("x") | {"script": "wait", "seconds": 0.0})
    assert given.group_id == spelled.group_id
    with pytest.raises(Refused, match="poke_context_fields"):
        pool.register(object())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"sensor": "os.system"}, "not enabled"),
        ({"sensor": "harness.scripted.Nothing"}, "not enabled"),
        ({"sensor": "no class path"}, "not a class path"),
        ({"poke_context": {"folder": "f"}}, "does not take this poke_context"),
        ({"poke_context": {"folder": "f", "name": "n", "extra": 1}}, "does not take this poke_context"),
        ({"poke_context": [1]}, "JSON object"),
        ({"poke_context": {"name": float("nan")}}, "nan"),
        ({"poke_context": {"name": "a\x00b"}}, "NUL"),
        ({"poke_context": {"name": "x" * 1_000_000}}, "65,536"),
        ({"sensor": "sensorpool.sensors.HttpSensor", "poke_context": {"url": "ftp:nowhere"}}, "url"),
        ({"poke_interval": 0}, "poke_interval"),
        ({"timeout": -1}, "timeout"),
        ({"soft_fail": True, "never_fail": True}, "mutually exclusive"),
        ({"dag_id": "d"}, "name all three"),
        ({"dag_id": "x" * 251, "task_id": "t", "run_id": "r"}, "250"),
        ({"dag_id": "d ", "task_id": "t", "run_id": "r"}, "space"),
        ({"nonsense": 1}, "nonsense"),
        ({"on_settled": {"task": "os.system"}}, "not allowed"),
        ({"on_settled": {"task": "theirs.go_on", "options": [1]}}, "options"),
        ({"on_settled": {"task": "theirs.go_on", "args": ["\ud83d\ude00"]}}, "lone surrogate"),
        ({"poke_context": {"name": "\ud83d\ude00"}}, "lone surrogate"),
    ],
)
def test_bad_input_is_refused_in_one_line_and_nothing_is_kept(
    pool: Pool, arguments: dict[str, object], says: str
) -> None:
    good = {"sensor": SCRIPTED, "poke_context": context("good")}
    with pytest.raises(Refused) as refused:
        pool.register_many([good, good | arguments])
    message = str(refused.value)
    assert says in message
    assert "\n" not in message
    assert len(message) < 400
    assert pool.database.read(inspecting.count_waiting) == (0, 0)


def test_bulk_registration_is_a_few_statements_a_thousand(pool: Pool) -> None:
    statements: list[str] = []
    event.listen(pool.database.engine, "before_cursor_execute", lambda *a: statements.append(a[2]))
    instances = pool.register_many(
        (
            {
                "sensor": SCRIPTED,
                "poke_context": context(f"g{n % 1200}"),
                "dag_id": "d",
                "task_id": f"t{n}",
                "run_id": "r",
            }
            for n in range(2000)
        ),
        try_out=False,
    )
    assert len({instance.id for instance in instances}) == 2000
    assert pool.database.read(inspecting.count_waiting) == (1200, 2000)
    # insert batches and look-ups are cut by the drivers' limits on parameters, never by the row
    assert len(statements) < 60


def test_whoever_changes_a_group_takes_its_next_version(pool: Pool) -> None:
    """A process recognises a changed group by its version."""

    def version() -> int:
        query = text("SELECT version FROM poke_group")
        return int(pool.database.read(lambda connection: connection.execute(query)).scalar_one())

    seen = []
    for task_id in ("a", "b", "c"):
        instance = pool.register(SCRIPTED, context("x"), dag_id="d", task_id=task_id, run_id="r")
        seen.append(version())
    pool.cancel(instance.id)
    seen.append(version())
    assert seen == sorted(set(seen))


def test_two_contexts_with_the_same_hashcode_never_share_a_poke(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    from sensorpool.client import validate
    from sensorpool.model import identity

    def eight_bits(op_classpath: str, poke_context: object) -> identity.Identity:
        real = identity.identify(op_classpath, poke_context)
        return identity.Identity(real.op_classpath, real.poke_context, real.digest, real.hashcode % 256, real.phase)

    monkeypatch.setattr(validate, "identify", eight_bits)
    made = pool.register_many({"sensor": SCRIPTED, "poke_context": context(f"n{n}")} for n in range(600))
    assert len({instance.group_id for instance in made}) == 600
    assert len({instance.hashcode for instance in made}) <= 256


def test_a_result_seen_before_somebody_registered_is_not_applied_to_them(pool: Pool) -> None:
    first = pool.register(SCRIPTED, context("x"))
    version = _version(pool, first.group_id)
    second = pool.register(SCRIPTED, context("x"))
    assert second.group_id == first.group_id
    seen = Fact(first.group_id, version, pool.database.read(pool.database.now), Outcome.LANDED)
    flush(pool.database, [seen], tick_ms=1000)
    assert pool.wait([first.id, second.id], 0) == {first.id: State.SUCCESS, second.id: State.SENSING}
    flush(pool.database, [seen], tick_ms=1000)  # a worker that was frozen hands the fact in again
    assert pool.wait([second.id], 0) == {second.id: State.SENSING}


def test_racing_registrations_landings_and_cancels_settle_nobody_unseen(pool: Pool) -> None:
    """Threads register, settle by facts that they loaded before, and cancel, on few conditions at once."""
    seed = int(os.environ.get("SENSORPOOL_TEST_SEED", random.randrange(2**31)))
    print(f"seed {seed}")
    stop = threading.Event()
    errors: list[BaseException] = []
    lock = threading.Lock()
    made: list[int] = []
    wrong: list[tuple[int, int]] = []

    def register(number: int) -> None:
        chance = random.Random(seed + number)
        try:
            for _ in range(40):
                instance = pool.register_many(
                    [Registration(sensor=SCRIPTED, poke_context=context(f"c{chance.randrange(3)}"))], try_out=False
                )[0]
                with lock:
                    made.append(instance.id)
        except BaseException as error:
            errors.append(error)

    def settle(number: int) -> None:
        chance = random.Random(seed - number)
        try:
            while not stop.is_set():
                groups = pool.database.read(lambda c: c.execute(text("SELECT id, version FROM poke_group")).all())
                if not groups:
                    continue
                group_id, version = chance.choice(groups)
                began = pool.database.read(pool.database.now)
                done = flush(pool.database, [Fact(group_id, version, began, Outcome.LANDED)], tick_ms=1000)
                for flushed in done:
                    for settled in flushed.settled:
                        joined = _joined(pool, settled.id)
                        if joined > version:
                            wrong.append((settled.id, version))
        except BaseException as error:
            errors.append(error)

    registrants = [threading.Thread(target=register, args=(n,)) for n in range(3)]
    settlers = [threading.Thread(target=settle, args=(n,)) for n in range(2)]
    for thread in registrants + settlers:
        thread.start()
    for thread in registrants:
        thread.join(120)
    stop.set()
    for thread in settlers:
        thread.join(120)
    assert not errors, errors[:3]
    assert not wrong
    groups, waiting = pool.database.read(inspecting.count_waiting)
    states = Counter(pool.wait(made, 0).values())
    assert states[State.SENSING] == waiting
    assert states[State.SENSING] + states[State.SUCCESS] == 120
    assert (groups == 0) == (waiting == 0)


def test_racing_tries_of_one_task_leave_one_sensing(pool: Pool) -> None:
    """In any order, no lower try still waits beside a higher one."""
    errors: list[BaseException] = []

    def register(number: int) -> None:
        try:
            one(pool, "same", try_number=number)
        except KeyConflict:
            pass  # a higher try exists already
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=register, args=(n,)) for n in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors, errors
    rows = pool.database.read(inspecting.instances, Selection(state=State.SENSING, dag_id="d"), 10)
    assert [row["try_number"] for row in rows] == [4]


@pytest.mark.parametrize("tries", [(1, 2), (2, 1), (2, 3), (0, 1)], ids=str)
def test_two_tries_with_different_conditions_at_one_moment_leave_the_higher_one(
    pool: Pool, tries: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try is about to commit when the other one looks, unless one waits for the other."""
    both = threading.Barrier(2)
    others: list[object] = []

    def reached(step: str) -> None:
        if step == "register.before_commit":
            with suppress(threading.BrokenBarrierError):
                both.wait(0.3)

    def register(number: int) -> None:
        try:
            one(pool, f"condition of {number}", try_number=number)
        except KeyConflict:
            pass
        except BaseException as error:
            others.append(error)

    monkeypatch.setattr("sensorpool.client.register.failpoint", reached)
    threads = [threading.Thread(target=register, args=(number,)) for number in tries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not others
    rows = pool.database.read(inspecting.instances, Selection(state=State.SENSING, dag_id="d"), 10)
    assert [row["try_number"] for row in rows] == [max(tries)]


def test_first_tries_do_not_wait_for_each_other(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a thousand do not wait either, and registrations without a key never wait."""
    if pool.database.engine.dialect.name == "sqlite":
        return  # it has one writer
    both = threading.Barrier(3)

    def reached(step: str) -> None:
        if step == "register.before_commit":
            both.wait(10)

    monkeypatch.setattr("sensorpool.client.register.failpoint", reached)
    named = [{"dag_id": "d", "task_id": f"t{n}", "run_id": "r"} for n in range(200)]
    batches = [named[:100], named[100:], [{}]]

    def register(number: int) -> None:
        pool.register_many(
            {"sensor": SCRIPTED, "poke_context": context(f"c{number}"), **key} for key in batches[number]
        )

    threads = [threading.Thread(target=register, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not both.broken, "one of them waited for another"
    assert pool.database.read(inspecting.count_waiting) == (3, 201)


def test_minus_zero_is_not_zero(pool: Pool) -> None:
    """These contexts are equal to Python, but they share no poke; each is poked with its own."""
    contexts = [{"folder": "/nowhere", "name": "x", "seconds": seconds} for seconds in (0.0, -0.0, 0)]
    made = [pool.register(SCRIPTED, each) for each in contexts]
    assert len({instance.group_id for instance in made}) == 3
    rows = pool.database.read(loading.groups, [instance.group_id for instance in made])
    spelt = {group.id: json.loads(poke_context)["seconds"] for group, _, poke_context, _ in rows}
    assert [repr(spelt[instance.group_id]) for instance in made] == ["0.0", "-0.0", "0"]


def test_five_interpreters_register_one_group(pool: Pool) -> None:
    url = pool.settings.database_url
    code = f"import sensorpool; print(sensorpool.register({SCRIPTED!r}, {{'name': 'x', 'folder': '/n'}}).group_id)"
    groups = set()
    for seed in ("0", "1", "2", "3", "random"):
        environment = os.environ | {
            "PYTHONHASHSEED": seed,
            "SENSORPOOL_DATABASE_URL": url,
            "SENSORPOOL_SENSORS_ENABLED": ENABLED,
        }
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        groups.add(done.stdout.strip())
    assert len(groups) == 1
    (group_id,) = (int(group) for group in groups)
    flushed = flush(
        pool.database,
        [Fact(group_id, _version(pool, group_id), pool.database.read(pool.database.now), Outcome.LANDED)],
        tick_ms=1000,
    )
    assert [len(each.settled) for each in flushed] == [5]  # one landing, one flush, all of them


def test_hostile_strings_are_only_strings(pool: Pool) -> None:
    hostile = "'; DROP TABLE sensor_instance; -- \\ \" % %s :x 💣"
    instance = pool.register(SCRIPTED, context(hostile), dag_id=hostile, task_id=hostile, run_id=hostile)
    rows = pool.database.read(inspecting.instances, Selection(dag_id=hostile), 10)
    assert [(row["id"], row["task_id"]) for row in rows] == [(instance.id, hostile)]


def test_keys_are_told_apart_letter_by_letter(pool: Pool) -> None:
    keys = [Key("dag", "t", "r"), Key("DAG", "t", "r"), Key("däg", "t", "r")]
    made = pool.register_many(Registration(sensor=SCRIPTED, poke_context=context("x"), key=key) for key in keys)
    assert len({instance.id for instance in made}) == len(keys)


def test_an_unmigrated_database_says_what_mends_it(tmp_path: Path) -> None:
    pool = Pool(Settings.load(database_url=f"sqlite:///{tmp_path / 'empty.db'}", sensors_enabled=ENABLED))
    with pytest.raises(SchemaMismatch, match="sensorpool db upgrade"):
        pool.register(SCRIPTED, context("x"))
    pool.close()


def _version(pool: Pool, group_id: int) -> int:
    row = pool.database.read(inspecting.group, group_id)
    assert row is not None
    return int(row["version"])


def _joined(pool: Pool, instance_id: int) -> int:
    row = pool.database.read(inspecting.instance, instance_id)
    assert row is not None
    return int(row["joined_version"])
