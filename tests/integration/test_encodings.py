"""A database whose encoding is not UTF-8: a text that it cannot hold is refused in one line, or written in ASCII."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from sqlalchemy import NullPool, create_engine, make_url, text

from harness.servers import Elsewhere, Server
from sensorpool import Pool, Settings
from sensorpool.admin import findings, instances, status
from sensorpool.errors import Refused
from sensorpool.model.states import State
from sensorpool.store.migrate import upgrade
from sensorpool.worker.context import Worker
from tests.integration.test_jobs import QUICK, job
from tests.integration.test_unsettled import OURS, Lands, Raises


@pytest.fixture(params=["LATIN1", "SQL_ASCII"])
def pool(request: pytest.FixtureRequest, postgres_server: Server | Elsewhere) -> Iterator[Pool]:
    outside = make_url(postgres_server.start().url)
    url = outside.set(database=f"sensorpool_test_{os.urandom(6).hex()}")
    engine = create_engine(outside, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(
            text(f"CREATE DATABASE {url.database} TEMPLATE template0 ENCODING '{request.param}' LOCALE 'C'")
        )
    upgrade(url.render_as_string(hide_password=False))
    made = Pool(Settings.load(database_url=url.render_as_string(hide_password=False), sensors_enabled=OURS, **QUICK))
    yield made
    made.close()
    with engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE {url.database} WITH (FORCE)"))


def register(pool: Pool, name: str, cls: type = Lands) -> int:
    return pool.register(f"{cls.__module__}.{cls.__name__}", {"name": name}, dag_id="d", task_id=name, run_id="r").id


@pytest.fixture
def encoding(pool: Pool) -> str | None:
    return pool.database.encoding()


def test_what_the_encoding_has_is_held(pool: Pool, make_worker: Callable[[Settings], Worker]) -> None:
    instance = register(pool, "café")
    job(make_worker(pool.settings), pool)
    shown = instances.show(pool, instance)
    assert (shown["state"], shown["task_id"], shown["poke_context"]) == (State.SUCCESS, "café", {"name": "café"})


def test_what_it_has_not_is_refused_in_one_line(pool: Pool, encoding: str) -> None:
    if encoding == "SQL_ASCII":  # it takes all bytes as letters
        assert instances.show(pool, register(pool, "💣"))["task_id"] == "💣"
        return
    with pytest.raises(Refused, match='has no equivalent in encoding "LATIN1"') as refused:
        register(pool, "💣")
    assert "\n" not in str(refused.value)
    assert status.status(pool)["groups"] == 0


def test_a_reason_that_it_has_not_is_written_in_ascii(pool: Pool, make_worker: Callable[[Settings], Worker]) -> None:
    raising, landing = register(pool, "raises", Raises), register(pool, "lands")
    job(make_worker(pool.settings), pool)
    shown = instances.show(pool, raising)
    assert (shown["state"], shown["ending"]) == (State.FAILED, "poke_error")
    assert shown["reason"] == "ValueError: it fails: \\U0001f4a3"
    assert pool.wait([landing], 0) == {landing: State.SUCCESS}


def test_a_reason_of_an_operator_is_no_traceback(pool: Pool) -> None:
    instance = register(pool, "x")
    with suppress(Refused):
        pool.cancel(instance, "💣")
    assert pool.cancel(instance, "no more") is State.CANCELLED


def test_the_doctor_says_so(pool: Pool, encoding: str) -> None:
    said = [finding.said for finding in findings.doctor(pool.settings) if finding.subject == "database"]
    assert any(f"its encoding is {encoding}" in each for each in said)
