"""No secret that Airflow knows gets out of the pool: a canary in each place, and a sensor that gives it away."""

import base64
import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

pytest.importorskip("airflow")

from airflow._shared.secrets_masker import mask_secret as mask_in_core
from airflow._shared.secrets_masker import reset_secrets_masker as reset_core_masker
from airflow.sdk import BaseHook, Variable
from airflow.sdk._shared.secrets_masker import mask_secret, reset_secrets_masker
from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.sdk.bases.sensor import PokeReturnValue as AirflowReturnValue
from sqlalchemy import text

from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.airflow.compat import secrets_masker
from sensorpool.errors import FailSensor, HandBack, InfraFailure, SkipSensor
from sensorpool.instrumentation import redaction
from sensorpool.instrumentation.logs import formatter
from sensorpool.model.values import DueGroup
from sensorpool.poke.child import Child, Suspect
from sensorpool.poke.classes import Classes
from sensorpool.publish.messages import result_of
from sensorpool.store.migrate import upgrade
from sensorpool.worker.context import Worker
from tests.airflow.running import in_dag

PASSWORD = "Canary/4 Pa&ss'wörd"
TOKEN = "Canary4Token"
KEY = f"-----BEGIN PRIVATE KEY-----\n{'Canary4KeyOne' * 4}\n{'Canary4KeyTwo' * 4}\n-----END PRIVATE KEY-----"
NESTED = "Canary4Nested"
HEADER = "Canary4Header"
FEED = "Canary4Variable"
CANARY = "Canary"
HEADER_OF_URL = base64.b64encode(f"us:{PASSWORD}".encode()).decode()
CONNECTION = {
    "conn_type": "postgres",
    "login": "us",
    "password": PASSWORD,
    "host": "127.0.0.1",
    "extra": {
        "token": TOKEN,
        "private_key": KEY,
        "account_key": HEADER,
        "keyfile_dict": json.dumps({"type": "service_account", "private_key_id": NESTED}),
    },
}


class Leaky(BaseSensorOperator):
    """Reads its secrets, and tells them in one of many ways."""

    def __init__(self, *, way: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.way = way

    def poke(self, context: Any) -> Any:
        connection = BaseHook.get_connection("leaky")
        assert connection.password == PASSWORD
        assert Variable.get("feed_token") == FEED
        self.log.warning("connecting with %s", connection.password)
        logging.getLogger("theirs").warning("connecting with %s", connection.extra)
        print(FEED, KEY)
        return WAYS[self.way]()


def raises(error: Exception) -> Callable[[], Any]:
    def poke() -> Any:
        logging.getLogger("theirs").error("it failed", exc_info=error)
        raise error

    return poke


class DriverError(Exception):
    """Of a driver; says how it was asked."""


_EVERYTHING = (PASSWORD, TOKEN, KEY, NESTED, HEADER, FEED)
WAYS: dict[str, Callable[[], Any]] = {
    "password": raises(DriverError(f"login of us with {PASSWORD} failed")),
    "url": raises(
        DriverError(f"postgresql://us:{quote(PASSWORD)}@h/x, postgresql://us:{quote(PASSWORD, safe='')}@h/x")
    ),
    "quoted": raises(DriverError(f"tried {quote(PASSWORD)} {quote(PASSWORD, safe='')} {quote_plus(PASSWORD)}")),
    "shown": raises(DriverError(*_EVERYTHING)),
    "json": raises(DriverError(json.dumps(_EVERYTHING))),
    "key": raises(DriverError(KEY)),
    "key on a line": raises(DriverError(" ".join(KEY.split()))),
    "key escaped": raises(DriverError(repr(KEY))),
    "line of a key": raises(DriverError(f"cannot read {KEY.splitlines()[1]!r}")),
    "long": raises(DriverError(f"{'x' * 100} {PASSWORD} " * 200)),
    "cut": raises(DriverError(f"{'x' * 1_990}{PASSWORD}")),
    "infra": raises(InfraFailure(f"refused {TOKEN}")),
    "skip": raises(SkipSensor(f"skipped {HEADER}")),
    "fail": raises(FailSensor(f"failed {FEED}")),
    "back": raises(HandBack(f"back {NESTED}")),
    "xcom": lambda: AirflowReturnValue(is_done=True, xcom_value={"found": f"with {TOKEN}"}),
    "named xcom": lambda: AirflowReturnValue(is_done=True, xcom_value={"password": "Canary"}),
}
PATH = f"{Leaky.__module__}.{Leaky.__qualname__}"


@pytest.fixture(autouse=True)
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AIRFLOW_CONN_LEAKY", json.dumps(CONNECTION))
    monkeypatch.setenv("AIRFLOW_VAR_FEED_TOKEN", FEED)
    monkeypatch.setattr(redaction, "_known", ())
    monkeypatch.setattr(secrets_masker, "_seen", {})
    reset_secrets_masker()
    reset_core_masker()
    redaction.ask(secrets_masker.new_secrets)
    yield
    reset_secrets_masker()
    reset_core_masker()


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    upgrade(url)
    settings = Settings.load(database_url=url, shards=1, tick=0.1, poke_interval=0.1, sensors_enabled=PATH)
    worker = Worker(settings)
    worker.leases.store.client.flushall()
    yield worker
    worker.close()


def test_nothing_of_what_the_pool_keeps_logs_or_publishes_holds_a_secret(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    published: list[Any] = []
    monkeypatch.setattr(worker.publisher, "publish", lambda settled: published.extend(map(result_of, settled)))
    pool = Pool(worker.settings)
    ids = {way: pool.register(PATH, {"way": way}).id for way in WAYS}
    with caplog.at_level(logging.DEBUG):
        until(
            "all but the one whose backend is away to end",
            lambda: worker.run_job(pool.ranges[0], "us") and len(published) == len(WAYS) - 1,
            every=0.1,
        )
    with pool.database.engine.connect() as connection:
        rows = {row.id: row for row in connection.execute(text("SELECT * FROM sensor_instance"))}
        outbox = connection.execute(text("SELECT * FROM sensorpool_outbox")).all()
    client = worker.leases.store.client
    in_redis = [client.zrange(name, 0, -1) for name in client.keys("*:pokes")]
    lines = [formatter(kind).format(record) for record in caplog.records for kind in ("text", "json")]
    assert "refused ***" in str(in_redis)
    assert any("it failed" in line for line in lines)
    for said in (rows.values(), outbox, published, in_redis, lines):
        for each in map(str, said):
            assert CANARY not in each, each
            assert HEADER_OF_URL not in each, each
    assert "login of us with *** failed" in rows[ids["password"]].reason
    assert rows[ids["xcom"]].ending == rows[ids["named xcom"]].ending == "landed", "without their values"
    pool.close()


def test_what_is_poked_apart_holds_no_secret(worker: Worker) -> None:
    """The child process knows secrets that its parent does not."""
    ways = ["password", "key", "shown"]
    child = Child(worker.settings, 4)
    try:
        for number, way in enumerate(ways):
            group = DueGroup(number, 0, 0, 1, 1_000, 0, 0, None)
            child.give(Suspect(group, PATH, json.dumps({"way": way}), alone=False))
        reasons: list[str | None] = []
        until("their reports", lambda: reasons.extend(r.reason for _, r in child.hear()) or len(reasons) == len(ways))
    finally:
        child.end()
    assert all(reason and "***" in reason for reason in reasons), reasons
    assert CANARY not in str(reasons)


LEAKY_AT_IMPORT = """
from airflow.sdk import BaseHook
raise RuntimeError("cannot connect with " + BaseHook.get_connection("leaky").password)
"""


def test_a_class_that_cannot_be_imported_tells_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: Worker
) -> None:
    (tmp_path / "leaky_at_import.py").write_text(LEAKY_AT_IMPORT)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(Exception, match=r"cannot connect with \*\*\*") as refused:
        Classes(["leaky_at_import.Sensor"]).find("leaky_at_import.Sensor")
    assert CANARY not in str(refused.value)


def test_both_maskers_are_asked_and_only_for_what_is_new() -> None:
    mask_secret("canary-of-the-sdk")
    mask_in_core("canary.of.the+core")
    assert {"canary-of-the-sdk", "canary.of.the+core"} <= set(secrets_masker.new_secrets())
    assert secrets_masker.new_secrets() == []
    mask_secret("canary\nin two lines")
    assert secrets_masker.new_secrets() == ["canary\nin two lines"]
    reset_secrets_masker()
    mask_secret("canary after a reset")
    assert "canary after a reset" in secrets_masker.new_secrets()


def test_what_comes_from_airflows_database_is_known(airflow_metadata: Any) -> None:
    """A Connection as the pool asks for it: encrypted in the database, and known to no other process."""
    from airflow.models import Connection
    from airflow.models import Variable as StoredVariable
    from airflow.secrets.metastore import MetastoreBackend
    from airflow.utils.session import create_session

    with create_session() as session:
        session.add(
            Connection(conn_id="stored", conn_type="http", password="Canary4Stored", extra='{"token": "Canary4Extra"}')
        )
        session.add(StoredVariable("stored_token", "Canary4StoredVariable"))
    reset_secrets_masker()
    reset_core_masker()
    assert redaction.hide("Canary4Stored Canary4StoredVariable") == "Canary4Stored Canary4StoredVariable"
    found = MetastoreBackend().get_connection("stored")
    assert found is not None
    assert found.extra_dejson["token"] == "Canary4Extra"
    assert MetastoreBackend().get_variable("stored_token") == "Canary4StoredVariable"
    assert redaction.hide("Canary4Stored, Canary4Extra, Canary4StoredVariable") == "***, ***, ***"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://redis:6379/0", "redis://redis:6379/0"),
        ("postgresql+psycopg2://db/airflow", "postgresql+psycopg2://db/airflow"),
        ("redis://:Canary4Url@redis:6379/0", "redis://:***@redis:6379/0"),
        ("redis://redis:6379/0?password=Canary4Query", "redis://redis:6379/0?password=***"),
        ("https://hooks.example/services/Canary4Path", "***"),
    ],
)
def test_the_address_of_a_server_is_no_secret(url: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's masker learns all of ``[celery] broker_url``, which may be the pool's Redis as well."""
    monkeypatch.setattr(redaction, "_sources", {})

    def source() -> list[str]:
        return [url]

    redaction.ask(source)
    assert redaction.hide(url) == shown


def test_no_thread_shows_what_another_one_is_just_being_told() -> None:
    begun, told = threading.Event(), threading.Event()

    def slow_source() -> list[str]:
        begun.set()
        assert told.wait(10)
        return ["canary of a source"]

    redaction.ask(slow_source)
    try:
        first = threading.Thread(target=redaction.hide, args=("",))
        first.start()
        assert begun.wait(10)
        seen: list[str] = []
        second = threading.Thread(target=lambda: seen.append(redaction.hide("a canary of a source")))
        second.start()
        second.join(0.2)
        assert not seen
        told.set()
        second.join(10)
        first.join(10)
        assert seen == ["a ***"]
    finally:
        redaction._sources.pop(f"{slow_source.__module__}:{slow_source.__qualname__}")


def test_the_sensor_is_built_as_the_pool_builds_it() -> None:
    """Or the tests above would not be about what they say."""
    pooled = Classes([PATH]).find(PATH).construct({"way": "skip"})
    assert isinstance(pooled._operator, Leaky)
    assert in_dag(Leaky, way="skip").way == "skip"
