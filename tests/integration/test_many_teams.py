"""Two teams on one Redis and one database, as `docs/many-teams.md` says: what is set for one holds for it alone."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import pytest
from sqlalchemy import create_engine, text

from harness.scripted import land, pokes
from harness.servers import Elsewhere, Server, fresh_database
from sensorpool import Pool, Settings
from sensorpool.errors import Refused
from sensorpool.store.migrate import upgrade
from sensorpool.worker.context import Worker
from tests.support.builders import classpath
from tests.support.sensors.backends import Asks

FILE = "sensorpool.sensors.PathSensor"
ASKS = classpath(Asks)
TICK = 0.2
MANY = 30


class Team(NamedTuple):
    """A team's pool, and a worker of it in this process."""

    pool: Pool
    worker: Worker
    folder: Path

    def job(self) -> None:
        """Run the job of the one range, a moment later."""
        time.sleep(TICK)
        self.worker.run_job(self.pool.ranges[0], "us")

    def ask(self, number: int) -> list[int]:
        """Register conditions of one backend; return the ids."""
        contexts = ({"folder": str(self.folder), "name": f"g{n}", "conn_id": "hive"} for n in range(number))
        return [
            made.id for made in self.pool.register_many({"sensor": ASKS, "poke_context": each} for each in contexts)
        ]


@pytest.fixture
def teams(postgres_server: Server | Elsewhere, redis_url: str, tmp_path: Path) -> Iterator[dict[str, Team]]:
    """The pools of two teams: only `ads` may poke files, and has a budget for the backend `hive`."""
    of_ads = {"sensors_enabled": f"{FILE},{ASKS}", "budgets": json.dumps({"hive": "2/s"})}
    made: dict[str, Team] = {}
    with ExitStack() as stack:
        url = stack.enter_context(fresh_database(postgres_server))
        for name, settings in {"ads": of_ads, "shop": {"sensors_enabled": ASKS}}.items():
            common = {"database_schema": name, "namespace": name, "shards": 1, "tick": TICK, "poke_interval": TICK}
            upgrade(url, schema=name)
            of_team = Settings.load(database_url=url, redis_url=redis_url, **common, **settings)
            folder = tmp_path / name
            folder.mkdir()
            pool, worker = stack.enter_context(closing(Pool(of_team))), stack.enter_context(closing(Worker(of_team)))
            made[name] = Team(pool, worker, folder)
        yield made


def test_each_has_its_own_allowlist(teams: dict[str, Team]) -> None:
    assert teams["ads"].pool.register(FILE, {"path": "/nowhere"}).id
    with pytest.raises(Refused, match="is not enabled"):
        teams["shop"].pool.register(FILE, {"path": "/nowhere"})


def test_each_has_its_own_budget(teams: dict[str, Team]) -> None:
    ids = {name: team.ask(MANY) for name, team in teams.items()}
    for team in teams.values():
        team.job()
    assert 0 < len(pokes(teams["ads"].folder)) < MANY / 2
    assert len(pokes(teams["shop"].folder)) == MANY
    for number in range(MANY):
        land(teams["shop"].folder, f"g{number}")
    teams["shop"].job()
    assert set(teams["shop"].pool.wait(ids["shop"], 0).values()) == {"success"}
    assert set(teams["ads"].pool.wait(ids["ads"], 0).values()) == {"sensing"}


def test_nothing_of_one_is_seen_by_the_other(teams: dict[str, Team]) -> None:
    for team in teams.values():
        team.ask(3)
        team.job()
    client = teams["ads"].worker.leases.store.client
    owners = {str(key).split(":")[1] for key in client.scan_iter("*")}
    assert owners == {"ads", "shop"}
    engine = create_engine(teams["ads"].pool.settings.database_url)
    with engine.connect() as connection:
        for name in teams:
            assert connection.execute(text(f"SELECT count(*) FROM {name}.poke_group")).scalar_one() == 3
        assert connection.execute(text("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")).scalar_one() == 0
    engine.dispose()
