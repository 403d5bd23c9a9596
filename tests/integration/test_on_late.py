"""The hook `on_late`: a web address and a Celery task are told of each late condition once, and again if they fail."""

import json
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import redis
from sqlalchemy import select

from sensorpool import Settings
from sensorpool.errors import Refused, SettingsError, Unreachable
from sensorpool.instrumentation.redaction import hide
from sensorpool.leases.trouble import ROUNDS
from sensorpool.publish import late_hook as hook
from sensorpool.publish.late_hook import LateHook
from sensorpool.store.schema import poke_group
from sensorpool.worker import rescue
from sensorpool.worker.chores import late_hook
from sensorpool.worker.chores.round import Rescued, Round
from tests.integration.test_late_conditions import HOUR, MINUTE, SCRIPTED, TODAY, Late

SECRET = "T00000000-B00000000-XXXXXXXX"


class Address:
    """A web address that answers as it is told, and keeps what was posted."""

    def __init__(self) -> None:
        self.posted: list[dict[str, Any]] = []
        self.answers: list[int] = []  # of the next requests; then 200
        address = self

        class Takes(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                address.posted.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(address.answers.pop(0) if address.answers else 200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Takes)
        self.url = f"http://127.0.0.1:{self.server.server_port}/services/{SECRET}"
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture
def address() -> Iterator[Address]:
    made = Address()
    yield made
    made.close()


@pytest.fixture
def make(each_database: str) -> Iterator[Callable[..., Late]]:
    """Makes pools with late conditions: as many as it is told, each with a waiter."""
    made: list[Late] = []

    def make(count: int, **settings: object) -> Late:
        series = Late(each_database, **settings)
        made.append(series)
        series.land_daily("sales")
        for number in range(count):
            series.register(f"n{number}", "sales")
        series.now = TODAY + HOUR + 6 * MINUTE
        assert series.find() == count
        return series

    yield make
    for series in made:
        series.worker.close()
        series.pool.close()


def tell(series: Late) -> None:
    late_hook.tell(Round(series.worker, series.place, Rescued()))


def told(series: Late) -> list[bool]:
    """Return of each group whether the hook was told of it."""
    query = select(poke_group.c.late_told_at).order_by(poke_group.c.id)
    rows = series.pool.database.read(lambda connection: connection.execute(query).scalars().all())
    return [at is not None and at > 0 for at in rows]


def test_an_address_is_told_once(make: Callable[..., Late], address: Address) -> None:
    series = make(2, on_late_url=address.url)
    for _ in range(3):
        tell(series)
        series.now += HOUR
    assert told(series) == [True, True]
    assert len(address.posted) == 2
    first = address.posted[0]
    assert first["poke_context"] == {"folder": "/nowhere", "name": "n0"}
    assert (first["event"], first["op_classpath"], first["members"]) == ("late", SCRIPTED, 1)
    assert (first["usually_lands_at"], first["late_after"]) == ("2026-09-28T01:00:00.000Z", "2026-09-28T01:05:00.000Z")
    assert len(first["waiters"]) == 1
    assert first["text"].startswith(f"sensorpool: {SCRIPTED} ")
    assert first["text"].endswith("is late, and 1 wait for it; it usually lands at 2026-09-28T01:00:00.000Z")


def test_one_that_is_refused_keeps_no_other_and_comes_again(make: Callable[..., Late], address: Address) -> None:
    series = make(3, on_late_url=address.url)
    address.answers = [500]
    with pytest.raises(Refused, match="answers 500"):
        tell(series)
    assert told(series) == [False, True, True]
    tell(series)
    assert len(address.posted) == 3, "not before its time"
    series.now += late_hook.AGAIN + 1
    tell(series)
    assert told(series) == [True] * 3
    assert len(address.posted) == 4


def test_an_address_that_is_away_ends_the_round(make: Callable[..., Late], address: Address) -> None:
    series = make(3, on_late_url="http://127.0.0.1:9/nothing-is-there")
    with pytest.raises(Unreachable, match="ON_LATE_URL does not answer"):
        tell(series)
    assert told(series) == [False] * 3
    with pytest.raises(Unreachable):
        tell(series)  # the next one


def test_an_answer_without_an_end_holds_rescue_up_for_a_while_only(
    make: Callable[..., Late], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook, "PATIENCE", 0.5)
    over = threading.Event()

    class Drips(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            while not over.wait(0.05):
                self.wfile.write(b"x-more: x\r\n")

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Drips)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        series = make(3, on_late_url=f"http://127.0.0.1:{server.server_port}/hook")
        with pytest.raises(Unreachable, match=r"no answer within 0\.5 s"):
            tell(series)
        with pytest.raises(Unreachable, match="has not ended its last answer"):
            tell(series)
        assert told(series) == [False] * 3
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def test_what_was_refused_keeps_no_newer_one_back(make: Callable[..., Late], address: Address) -> None:
    series = make(3, on_late_url=address.url)
    address.answers = [500]
    with pytest.raises(Refused):
        tell(series)
    series.register("n9", "sales")
    series.now += 6 * MINUTE  # it waits since late, and has the margin from then on
    assert series.find() == 1
    series.now += late_hook.AGAIN + 1
    address.posted.clear()
    tell(series)
    assert [each["poke_context"]["name"] for each in address.posted] == ["n9", "n0"]


def test_two_processes_tell_it_once(make: Callable[..., Late], address: Address) -> None:
    series = make(1, on_late_url=address.url)
    database = series.pool.database
    [group] = database.read(late_hook.late_conditions.untold, series.now, 10)
    assert database.run(late_hook.late_conditions.claim, group, series.now)
    assert not database.run(late_hook.late_conditions.claim, group, series.now), "another process has claimed it"
    tell(series)
    assert address.posted == []
    series.now += late_hook.AGAIN + 1  # that process is dead
    tell(series)
    assert len(address.posted) == 1


def test_a_task_is_sent(make: Callable[..., Late], redis_url: str) -> None:
    series = make(1, on_late_task="theirs.on_late", on_settled_broker_url=redis_url, on_settled_queue="alerts")
    tell(series)
    assert told(series) == [True]
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        [message] = client.lrange("alerts", 0, -1)
    sent = json.loads(message)
    assert sent["headers"]["task"] == "theirs.on_late"
    [arguments, _, _] = json.loads(b64decode(sent["body"]))
    assert arguments[0]["event"] == "late"


def test_without_a_hook_nothing_is_asked(make: Callable[..., Late]) -> None:
    series = make(1)
    tell(series)
    assert told(series) == [False]


def test_the_address_is_a_secret() -> None:
    settings = Settings.load(on_late_url=f"https://hooks.example/services/{SECRET}")
    assert settings.shown()["on_late_url"] == "***"
    assert SECRET not in hide(f"HTTP Request: POST https://hooks.example/services/{SECRET}")


def test_the_address_is_hidden_as_httpx_spells_it() -> None:
    LateHook(Settings.load(on_late_url=f"HTTPS://HOOKS.Example:443/services/{SECRET}?key=a b"))
    for spelt in (f"https://hooks.example/services/{SECRET}", f"GET /services/{SECRET}?key=a%20b"):
        assert SECRET not in hide(spelt), spelt


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"on_late_url": "https://x/y", "on_late_task": "t", "broker_url": "redis://x/0"}, "beside ON_LATE_URL"),
        ({"on_late_task": "t", "redis_url": "memory://"}, "needs a broker that others can reach"),
    ],
)
def test_hooks_that_cannot_work_are_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Settings.load(**settings)


@pytest.mark.parametrize(
    "url", ["hooks.example/x", "ftp://host/x", "http://", "http://[", "https://hö.st/x", "http:///x"]
)
def test_what_is_no_address_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(SettingsError) as raised:
        Settings.load(on_late_url=url)
    assert str(raised.value) == "SENSORPOOL_ON_LATE_URL must be a web address like https://host/path"


def test_a_hook_that_refuses_again_and_again_turns_health_red(make: Callable[..., Late], address: Address) -> None:
    """Between two attempts are rounds that have nothing to tell: they say nothing of whether the hook works."""
    series = make(1, on_late_url=address.url)
    address.answers = [404] * ROUNDS
    for number in range(ROUNDS):
        assert series.worker.trouble.of_chores() == {}
        for _ in range(4):  # a minute of them
            rescue.rescue(series.worker, series.place)
        assert len(address.posted) == number + 1
        series.now += late_hook.AGAIN + 1
    [(chore, cause)] = series.worker.trouble.of_chores().items()
    assert chore == "telling on_late"
    assert "answers 404" in cause
    rescue.rescue(series.worker, series.place)
    assert told(series) == [True]
    assert series.worker.trouble.of_chores() == {}
