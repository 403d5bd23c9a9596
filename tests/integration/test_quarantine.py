"""Quarantine on the command line: a listed condition can be released by its listed ID."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import insert

from sensorpool import Pool
from sensorpool.cli.main import main
from sensorpool.model.identity import identify
from sensorpool.store.schema import poke_quarantine

SENSOR = "sensorpool.sensors.PathSensor"


@pytest.fixture
def run(make_pool: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs commands on a pool with three conditions in quarantine that have no instance."""
    pool = make_pool()
    monkeypatch.setenv("SENSORPOOL_DATABASE_URL", pool.settings.database_url)
    rows: list[dict[str, Any]] = []
    for number in range(3):
        condition = identify(SENSOR, {"path": f"/{number}"})
        rows.append(
            {
                "digest": condition.digest,
                "op_classpath": SENSOR,
                "poke_context": condition.poke_context,
                "crashes": 3,
                "reason": "it ended its process",
                "since": number,
            }
        )
    with pool.database.engine.begin() as connection:
        connection.execute(insert(poke_quarantine), rows)
    return lambda *arguments: CliRunner().invoke(main, list(arguments))


def test_what_is_listed_can_be_let_out(run: Callable[..., Result]) -> None:
    listed = json.loads(run("quarantine", "--json").output)
    first, second, third = (each["id"] for each in listed)
    assert first in run("quarantine").output
    assert "sensorpool release ID" in run("quarantine").output
    assert run("release", second).output == "1 let out of quarantine\n"
    assert [each["id"] for each in json.loads(run("quarantine", "--json").output)] == [first, third]
    assert run("release", second).exit_code == 1  # it is out
    both = run("release", first, second)
    assert both.exit_code == 1
    assert f"{second} is not in quarantine" in both.output
    assert len(json.loads(run("quarantine", "--json").output)) == 2  # nothing was let out
    assert run("release", "--all").output == "2 let out of quarantine\n"


@pytest.mark.parametrize("wrong", ["x", "-1", "1.5", "9" * 30, ""])
def test_what_is_no_id_is_refused_in_one_line(run: Callable[..., Result], wrong: str) -> None:
    refused = run("release", "--", wrong)
    assert refused.exit_code == 1
    assert refused.output == f"sensorpool: {wrong} is not in quarantine: `sensorpool quarantine` lists what is\n"
