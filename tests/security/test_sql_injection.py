"""Threat: SQL in what users give."""

import json
from pathlib import Path

import pytest
from sqlalchemy import inspect

from sensorpool import Pool, Settings
from sensorpool.admin import instances
from sensorpool.model.states import State
from sensorpool.store.inspecting import Selection
from sensorpool.store.migrate import upgrade

SCRIPTED = "harness.scripted.ScriptedSensor"
TABLES = {"poke_group", "sensor_instance", "sensorpool_outbox", "sensorpool_schema"}
HOSTILE = [
    "'; DROP TABLE sensor_instance; --",
    '"; DROP TABLE sensor_instance; --',
    "x' OR '1'='1",
    "\\'; DELETE FROM poke_group; --",
    "%(now)s %s %% :name ? $1 {prefix} {}",
    "'||(SELECT 1)||'",
    "`; DROP TABLE poke_group; #",
    "/* */ UNION SELECT 1,2,3 --",
    '{1,2}") NULL \\N',
    "ʼ; DROP TABLE poke_group; -- 字",
]


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    upgrade(url)
    return url


def check(url: str) -> None:
    settings = Settings.load(database_url=url, sensors_enabled=SCRIPTED, on_settled_tasks="t")
    pool = Pool(settings)
    made = {}
    for text in HOSTILE:
        context = {"folder": text, "name": text, "script": text}
        for many in (1, 2):  # PostgreSQL has a statement for one and another for many
            named = [
                {
                    "sensor": SCRIPTED,
                    "poke_context": context,
                    "dag_id": text,
                    "task_id": text,
                    "run_id": f"{text} {many} {number}",
                    "external_id": text[:64],
                    "on_settled": {"task": "t", "args": [text], "kwargs": {text: text}},
                }
                for number in range(many)
            ]
            made[text] = pool.register_many(named)[-1].id
            assert pool.register_many(named)[-1].id == made[text]
    assert len(instances.list_instances(pool, Selection(), 1_000)) == 3 * len(HOSTILE)
    for text, instance_id in made.items():
        by = Selection(state=State.SENSING, dag_id=text), Selection(task_id=text), Selection(dag_id=text, text=text)
        found, of_task, of_text = (instances.list_instances(pool, each, 100) for each in by)
        assert {row["dag_id"] for row in found} == {text}
        assert len(found) == len(of_task) == 3
        assert [row["id"] for row in of_text] == [row["id"] for row in found]
        shown = instances.show(pool, instance_id)
        assert (shown["dag_id"], shown["task_id"], shown["run_id"]) == (text, text, f"{text} 2 1")
        assert shown["poke_context"] == {"folder": text, "name": text, "script": text}
        assert shown["external_id"] == text[:64]
        assert pool.cancel(instance_id, text) is State.CANCELLED
        ended = instances.show(pool, instance_id)
        assert ended["reason"] == text
        assert json.dumps(ended)
    assert set(inspect(pool.database.engine).get_table_names()) >= TABLES
    assert len(instances.list_instances(pool, Selection(), 1_000)) == 3 * len(HOSTILE)
    pool.close()


def test_hostile_text_on_sqlite(sqlite_url: str) -> None:
    """Threat `SQL injection`."""
    check(sqlite_url)


def test_hostile_text_on_postgresql(postgres_database: str) -> None:
    """Threat `SQL injection`."""
    check(postgres_database)


def test_hostile_text_on_mariadb(mariadb_database: str) -> None:
    """Threat `SQL injection`."""
    check(mariadb_database)
