"""A class that one process cannot poke is left to the others: on an SQLite file, workers in this process."""

import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import fsspec
import pytest
from sqlalchemy import select

from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.admin import findings, status
from sensorpool.poke import classes
from sensorpool.store import inspecting
from sensorpool.store.schema import group_trouble
from sensorpool.worker.context import Worker
from tests.sensors.serving import Server
from tests.support.troubled import put_in_trouble

TICK = 0.1
PATH = "company_left.sensors.Waits"
QUICK = {"shards": 1, "tick": TICK, "poke_interval": 3_600, "poke_timeout": 5.0}
SOUND = """
class Waits:
    poked = []
    landed = set()
    def __init__(self, name):
        self.name = name
    def poke(self, context):
        Waits.poked.append(self.name)
        return self.name in Waits.landed
"""


class Company:
    """A company's package, which two processes see in two versions."""

    def __init__(self, folder: Path) -> None:
        self._package = folder / "company_left"
        self._package.mkdir()
        (self._package / "__init__.py").write_text("")
        self.write(SOUND)

    def write(self, text: str) -> None:
        """Write its module again, and remove it from this process."""
        (self._package / "sensors.py").write_text(text)
        forget()

    @property
    def waits(self) -> Any:
        """The class."""
        return sys.modules["company_left.sensors"].Waits


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "company_left"]:
        del sys.modules[name]


@pytest.fixture
def company(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield Company(tmp_path)
    forget()


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    return make_pool(sensors_enabled=[PATH], **QUICK)


@pytest.fixture
def good(pool: Pool, make_worker: Callable[[Settings], Worker]) -> Worker:
    return make_worker(pool.settings)


@pytest.fixture
def bad(pool: Pool, good: Worker, make_worker: Callable[[Settings], Worker]) -> Worker:
    """A worker with an old allowlist."""
    return make_worker(pool.settings.model_copy(update={"sensors_enabled": ("other.Class",)}))


def register(pool: Pool, names: int, **more: Any) -> list[int]:
    made = pool.register_many(
        [{"sensor": PATH, "poke_context": {"name": f"n{n}"}, **more} for n in range(names)], try_out=False
    )
    return [instance.id for instance in made]


def job(worker: Worker, pool: Pool, token: str = "one@here/1") -> dict[str, Any]:
    """Run the job of the one range, as soon as the next tick has begun."""
    time.sleep(TICK)
    return worker.run_job(pool.ranges[0], token).as_dict()


def states(pool: Pool, ids: list[int]) -> set[str]:
    return {str(state) for state in pool.wait(ids, 0).values()}


def row(pool: Pool, instance_id: int) -> Any:
    return pool.database.read(inspecting.instance, instance_id)


def unpokeable(pool: Pool) -> set[int]:
    """Return the groups that no process could poke."""
    of_some = select(group_trouble.c.group_id).where(group_trouble.c.unpokeable_since.is_not(None))
    with pool.database.engine.connect() as connection:
        return set(connection.execute(of_some).scalars())


def test_what_one_process_cannot_poke_the_next_one_pokes_at_once(
    pool: Pool, good: Worker, bad: Worker, company: Company
) -> None:
    ids = register(pool, 20)
    job(bad, pool)
    assert states(pool, ids) == {"sensing"}
    assert len(unpokeable(pool)) == 20
    job(good, pool)
    assert sorted(company.waits.poked) == sorted(f"n{n}" for n in range(20)), "within a tick, not an interval"
    assert not unpokeable(pool)
    assert job(bad, pool)["groups"] == 0, "they are not due"


@pytest.mark.parametrize("jobs", [1, 4])
def test_a_landed_condition_settles_though_the_other_process_was_first(
    pool: Pool, good: Worker, bad: Worker, company: Company, jobs: int
) -> None:
    [ours] = register(pool, 1)
    for _ in range(jobs):
        job(bad, pool)
    company.write(SOUND.replace("set()", "{'n0'}"))
    job(good, pool)
    assert states(pool, [ours]) == {"success"}


def test_when_no_process_can_poke_for_the_window_it_fails_or_is_handed_back(
    make_pool: Callable[..., Pool], make_worker: Callable[[Settings], Worker], company: Company
) -> None:
    pool = make_pool(sensors_enabled=[PATH], infra_failure_window=3 * TICK, **QUICK | {"poke_interval": TICK})
    bad = make_worker(pool.settings.model_copy(update={"sensors_enabled": ("other.Class",)}))
    [plain] = register(pool, 1)
    [task] = register(pool, 1, external_id="a-task-of-airflow")
    until("its end", lambda: job(bad, pool, "worker7@host/1") and states(pool, [plain, task]) != {"sensing"})
    found = row(pool, plain)
    assert (found["state"], found["ending"]) == ("failed", "fail")
    for said in ("worker7@host cannot poke it", f"{PATH} is not enabled", "for 0.3 s"):
        assert said in found["reason"]
    handed = row(pool, task)
    assert (handed["state"], handed["ending"], handed["reason"]) == ("cancelled", "handed_back", found["reason"])


def test_a_deadline_that_nobody_can_poke_at_ends_within_three_intervals(
    make_pool: Callable[..., Pool], make_worker: Callable[[Settings], Worker], company: Company
) -> None:
    interval, timeout = 3 * TICK, 0.3
    pool = make_pool(sensors_enabled=[PATH], **QUICK | {"poke_interval": interval})
    bad = make_worker(pool.settings.model_copy(update={"sensors_enabled": ("other.Class",)}))
    [plain] = register(pool, 1, timeout=timeout)
    [task] = register(pool, 1, timeout=timeout, external_id="a-task-of-airflow")
    until("their end", lambda: job(bad, pool) and "sensing" not in states(pool, [plain, task]))
    ended, handed = row(pool, plain), row(pool, task)
    assert (ended["state"], ended["ending"]) == ("failed", "timeout")
    assert "cannot_poke" in ended["reason"]
    assert (handed["state"], handed["ending"]) == ("cancelled", "handed_back"), "it pokes once, and times out there"
    late = (ended["settled_at"] - ended["timeout_at"]) / 1000
    assert 2 * interval - 2 * TICK <= late <= 3 * interval + TICK


def test_after_an_outage_a_process_that_cannot_poke_times_nothing_out(
    pool: Pool, good: Worker, bad: Worker, company: Company
) -> None:
    """After an outage, a process that can poke the group pokes it before it times out."""
    [ours] = register(pool, 1, timeout=2 * TICK, poke_interval=TICK)
    time.sleep(8 * TICK)
    job(bad, pool)
    assert states(pool, [ours]) == {"sensing"}
    company.write(SOUND.replace("set()", "{'n0'}"))
    job(good, pool)
    assert states(pool, [ours]) == {"success"}


REFUSED_AT_IMPORT = """
from company_left import counted
raise ConnectionRefusedError("the licence server is away")
"""
COUNTED = """
import os, pathlib
with open(pathlib.Path(__file__).with_name("imports"), "a") as file:
    file.write("x")
"""


def test_an_import_that_fails_for_a_while_is_tried_again_and_not_for_each_group_or_tick(
    pool: Pool, good: Worker, company: Company, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(classes, "RETRY_AFTER", 3_600)
    good.poker.classes._retry_after = 3_600.0
    company.write(REFUSED_AT_IMPORT)
    (tmp_path / "company_left" / "counted.py").write_text(COUNTED)
    ids = register(pool, 50)
    for _ in range(4):
        job(good, pool)
        sys.modules.pop("company_left.counted", None)
    assert (tmp_path / "company_left" / "imports").read_text() == "x"
    assert states(pool, ids) == {"sensing"}
    company.write(SOUND)
    refusal = good.poker.classes._refusals[PATH]
    good.poker.classes._refusals[PATH] = refusal._replace(again_at=0.0)  # the time has come
    job(good, pool)
    assert len(company.waits.poked) == 50
    assert good.poker.classes.refusals == {}


OLDER = SOUND.replace("def __init__(self, name)", "def __init__(self, title)")
DECLARES_LESS = SOUND + "    poke_context_fields = ('title',)\n"
LAZY = SOUND.replace("self.name = name", "import no_such_module_of_the_company")
LAZY_POKE = SOUND.replace("Waits.poked.append(self.name)", "import no_such_module_of_the_company")
LAZY_ASYNC = LAZY_POKE.replace("def poke", "async def poke")
EXITS = SOUND.replace("self.name = name", "raise SystemExit('set this first')")
ASKS = SOUND.replace("self.name = name", "raise RuntimeError('no such Variable')")
MANY = (
    SOUND
    + """
    @classmethod
    def poke_many(cls, contexts):
        import no_such_module_of_the_company
"""
)
MANY_DECLARES = (
    DECLARES_LESS
    + """
    @classmethod
    def poke_many(cls, contexts):
        raise AssertionError
"""
)
LACKS = SOUND.replace(
    "Waits.poked.append(self.name)", "from sensorpool.errors import CannotPoke; raise CannotPoke('no share is mounted')"
)
LACKS_ASYNC = LACKS.replace("def poke", "async def poke")
ODD = {
    "raises at import": "raise RuntimeError('no')",
    "ends its import": "raise SystemExit('set this first')",
    "has no such class": "",
    "no class": "Waits = 7",
    "no sensor": "class Waits: pass",
    "an older class": OLDER,
    "an older class that declares less": DECLARES_LESS,
    "imports late": LAZY,
    "imports in its poke": LAZY_POKE,
    "imports in its async poke": LAZY_ASYNC,
    "exits": EXITS,
    "asks for something of its place": ASKS,
    "says that it cannot": LACKS,
    "says that it cannot, async": LACKS_ASYNC,
    "imports in poke_many": MANY,
    "declares less, many": MANY_DECLARES,
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
def test_whatever_is_wrong_with_one_processs_class_the_other_one_pokes(
    pool: Pool, good: Worker, make_worker: Callable[[Settings], Worker], company: Company, text: str
) -> None:
    odd = make_worker(pool.settings)
    company.write(text)
    ids = register(pool, 5)
    for _ in range(2):
        job(odd, pool)
    # a job does not wait for a poke that is slow, as any may be on a busy machine
    until("all to be left to others", lambda: len(unpokeable(pool)) == 5 or (job(odd, pool) and False))
    assert states(pool, ids) == {"sensing"}
    assert list(odd.poker.classes.refusals) == [PATH]
    company.write(SOUND)
    job(good, pool)
    assert len(company.waits.poked) == 5
    assert not unpokeable(pool)


OURS = "sensorpool.sensors."
MISSING = {
    "no such connection": ("SqlSensor", {"sql": "SELECT count(*) FROM t", "conn_id": "there"}, "", "sqlite:///{file}"),
    "no driver": (
        *("SqlSensor", {"sql": "SELECT count(*) FROM t", "conn_id": "there"}),
        *("no_driver://u@h/d", "sqlite:///{file}"),
    ),
    "malformed": (
        *("SqlSensor", {"sql": "SELECT count(*) FROM t", "conn_id": "there"}),
        *("warehouse", "sqlite:///{file}"),
    ),
    "an option that psycopg does not know": (
        *("SqlSensor", {"sql": "SELECT count(*) FROM t", "conn_id": "there"}),
        *("postgresql+psycopg://u:swordfish@127.0.0.1:1/d?sslmodee=require", "sqlite:///{file}"),
    ),
    "an option that PyMySQL does not know": (
        *("SqlSensor", {"sql": "SELECT count(*) FROM t", "conn_id": "there"}),
        *("mysql+pymysql://u:swordfish@127.0.0.1:1/d?ssl_disabledd=1", "sqlite:///{file}"),
    ),
    "no base URL": ("HttpSensor", {"url": "/x", "conn_id": "there", "status": 404}, "", "{url}"),
    "options that its filesystem refuses": (
        *("PathSensor", {"path": "memory://left/x", "conn_id": "there"}),
        *('{"max_paths": "swordfish"}', "{{}}"),
    ),
    "no options": ("PathSensor", {"path": "memory://left/x", "conn_id": "there"}, "", "{{}}"),
}


@pytest.mark.parametrize(("cls", "context", "here", "there"), MISSING.values(), ids=MISSING.keys())
def test_a_connection_that_one_process_lacks_fails_nobody(
    make_pool: Callable[..., Pool],
    make_worker: Callable[[Settings], Worker],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    refusing: str,
    cls: str,
    context: dict[str, Any],
    here: str,
    there: str,
) -> None:
    with closing(sqlite3.connect(tmp_path / "asked.db")) as asked:
        asked.execute("CREATE TABLE t AS SELECT 1")
    fsspec.filesystem("memory").pipe("/left/x", b"x")
    pool = make_pool(**QUICK)
    first, second = make_worker(pool.settings), make_worker(pool.settings)
    ids = [
        pool.register(OURS + cls, context, poke_interval=TICK).id,
        pool.register(OURS + cls, context | {"conn_id": "there_too"}, poke_interval=TICK).id,
    ]
    for name in ("SENSORPOOL_CONN_THERE", "SENSORPOOL_CONN_THERE_TOO"):
        monkeypatch.setenv(name, here)
    until("both to be left", lambda: job(first, pool, "worker7@host/1") and len(unpokeable(pool)) == 2)
    assert states(pool, ids) == {"sensing"}
    [problem] = told(pool)
    assert problem.startswith(f"2 conditions of {OURS}{cls} cannot be poked: ")
    assert "SENSORPOOL_CONN_THERE" in problem
    assert problem.count("worker7@host") == 1
    assert "swordfish" not in problem
    for name in ("SENSORPOOL_CONN_THERE", "SENSORPOOL_CONN_THERE_TOO"):
        monkeypatch.setenv(name, there.format(file=tmp_path / "asked.db", url=refusing))
    until("their end", lambda: job(second, pool, "worker8@host/1") and states(pool, ids) == {"success"})


@pytest.fixture
def refusing() -> Iterator[str]:
    """The URL of a server without any page."""
    with closing(Server()) as server:
        yield server.url


def test_what_a_row_itself_says_wrong_fails_at_once(pool: Pool, good: Worker, company: Company) -> None:
    garbled, ours = register(pool, 2)
    with pool.database.engine.begin() as connection:
        group_id = row(pool, garbled)["group_id"]
        connection.exec_driver_sql("UPDATE poke_group SET poke_context = '[1]' WHERE id = ?", (group_id,))
    job(good, pool)
    assert (row(pool, garbled)["state"], row(pool, ours)["state"]) == ("failed", "sensing")
    assert "no JSON object" in row(pool, garbled)["reason"]


def test_isolated_groups_that_this_process_cannot_poke_are_left_to_others_too(
    pool: Pool, good: Worker, bad: Worker, company: Company
) -> None:
    ids = register(pool, 2, poke_interval=TICK)
    groups = [row(pool, instance_id)["group_id"] for instance_id in ids]
    put_in_trouble(pool.database, groups, overruns=1)
    until("a child's answer", lambda: job(bad, pool) and len(unpokeable(pool)) == 2)
    assert states(pool, ids) == {"sensing"}
    company.write(SOUND.replace("set()", "{'n0', 'n1'}"))
    until("a poke of the other's child", lambda: job(good, pool) and states(pool, ids) == {"success"})


def test_isolated_groups_that_no_process_can_poke_end_as_the_others_do(
    make_pool: Callable[..., Pool], make_worker: Callable[[Settings], Worker], company: Company
) -> None:
    pool = make_pool(sensors_enabled=[PATH], infra_failure_window=3 * TICK, **QUICK | {"poke_interval": TICK})
    bad = make_worker(pool.settings.model_copy(update={"sensors_enabled": ("other.Class",)}))
    [ours] = register(pool, 1)
    put_in_trouble(pool.database, [row(pool, ours)["group_id"]], strikes=1)
    until("its end", lambda: job(bad, pool) and states(pool, [ours]) == {"failed"})


def told(pool: Pool) -> list[str]:
    """Return `health`'s lines of classes that no process can poke. Others tell of missed ticks."""
    return [line for line in findings.health(pool) if " cannot be poked: " in line]


def test_operators_are_told_what_nobody_can_poke_and_why(
    pool: Pool, good: Worker, bad: Worker, company: Company, caplog: pytest.LogCaptureFixture
) -> None:
    register(pool, 20)
    for _ in range(3):
        job(bad, pool, "worker7@host/1")
    said = [each for each in caplog.records if getattr(each, "fields", {}).get("op_classpath") == PATH]
    assert len(said) == 1, "a line a class and cause"
    why = f"{PATH} is not enabled: add it to SENSORPOOL_SENSORS_ENABLED"
    [problem] = told(pool)
    cause = f"worker7@host cannot poke it: ClassUnavailable: {why}"
    assert problem == f"20 conditions of {PATH} cannot be poked: {cause}"
    assert status.status(pool)["unpokeable"] == [{"op_classpath": PATH, "groups": 20, "cause": cause}]
    job(good, pool, "worker8@host/1")
    assert told(pool) == status.status(pool)["unpokeable"] == [], "another process can"
