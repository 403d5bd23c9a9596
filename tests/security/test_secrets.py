"""Threat: secrets get out by logs, messages, commands, Redis or the tables."""

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import make_url, text

from harness.service import Service
from harness.until import until
from sensorpool.instrumentation import redaction
from sensorpool.instrumentation.logs import formatter, logger
from sensorpool.model.states import State
from sensorpool.poke.answer import sanitised
from sensorpool.publish import listen

LEAKY = """
import logging, os, sys, traceback
from sqlalchemy import create_engine

class Leaky:
    def __init__(self, how):
        self.how = how

    def poke(self, context):
        secret = os.environ["SENSORPOOL_CONN_WAREHOUSE"]
        print("connecting to", secret)
        print("connecting to", secret, file=sys.stderr)
        logging.getLogger("theirs").warning("connecting to %s", secret)
        try:
            raise ConnectionRefusedError("no answer from " + secret)
        except ConnectionRefusedError:
            logging.getLogger("theirs").exception("it failed")
            traceback.print_exc()
        bare = secret.split(":")[2].split("@")[0]
        if self.how == "bare":
            raise ValueError("login with the word " + bare + " failed, " + repr({"x-api-key": bare}))
        if self.how == "lands":
            return True
        whole = secret + " {'password': '" + bare + "'} " + os.environ["SENSORPOOL_DATABASE_URL"]
        raise ValueError("cannot ask " + whole)
"""
CANARY = "Canary4Sensorpool"


def test_no_secret_gets_out(make_service: Callable[..., Service], tmp_path: Path, redis_server: Any) -> None:
    """Threat `secrets`: a canary in every URL and connection, a sensor that gives it away, servers that go away."""
    (tmp_path / "leaky.py").write_text(LEAKY)
    service = make_service(log_level="DEBUG", sensors_enabled="leaky.Leaky,sensorpool.sensors.SqlSensor")
    where = f"postgresql://poker:{CANARY}@127.0.0.1:1/x"
    secret = {
        "SENSORPOOL_CONN_WAREHOUSE": where,
        "SENSORPOOL_CONN_API": json.dumps(
            {"base_url": "http://127.0.0.1:1", "headers": {"Authorization": f"Bearer {CANARY}"}}
        ),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
    }
    service.process("worker", "--concurrency=1", "--loglevel=DEBUG", **secret)
    service.process("beat", "--loglevel=DEBUG", **secret)
    heard: list[Any] = []
    with listen(service.settings) as bodies:
        ids = [
            service.pool.register_many(
                [{"sensor": "leaky.Leaky", "poke_context": {"how": how}, "dag_id": "d", "task_id": how, "run_id": "r"}],
                try_out=False,
            )[0].id
            for how in ("bare", "whole", "lands")
        ]
        sql = {"sql": "SELECT 1", "conn_id": "warehouse"}
        service.pool.register("sensorpool.sensors.SqlSensor", sql)
        until("the first poke", lambda: State.SENSING not in service.pool.wait(ids, 0).values())
        for body in bodies:
            heard.append(body)
            if sum(len(each["settled"]) for each in heard) >= len(ids):
                break
    said = [json.dumps(heard), stored(service)]
    show = ["show", str(ids[0]), "--json"]
    for arguments in (["config"], ["doctor"], ["status", "--json"], ["list"], show):
        done = service.cli(*arguments, **secret)
        said.append(done.stdout + done.stderr)
    redis_server.kill()
    try:
        for arguments in (["status"], ["doctor"]):
            done = service.cli(*arguments, **secret, SENSORPOOL_DATABASE_URL=where)
            said.append(done.stdout + done.stderr)
        until("a word about it", lambda: "does not answer" in service.logs() or "onnection" in service.logs())
    finally:
        redis_server.start()
    said.append(service.logs())
    secrets = {CANARY, make_url(service.settings.database_url).password, make_url(service.settings.redis_url).password}
    for word in secrets:
        assert word
        for what in said:
            assert word not in what, what[max(0, what.index(word) - 1_000) : what.index(word) + 100]
    assert "***" in service.logs()
    assert "it failed" in service.logs()


def stored(service: Service) -> str:
    """Everything in Redis, and what others read in the tables."""
    client = service.pool.leases.store.client
    readers = {"string": client.get, "hash": client.hgetall, "set": client.smembers}
    readers |= {"zset": lambda name: client.zrange(name, 0, -1), "list": lambda name: client.lrange(name, 0, -1)}
    # A key may expire between two looks: then its type is "none".
    found = [str(readers[kind](name)) for name in client.keys("*") if (kind := client.type(name)) in readers]
    with service.pool.database.engine.connect() as connection:
        for query in ("SELECT * FROM sensorpool_outbox", "SELECT * FROM sensor_instance"):
            found += [str(row) for row in connection.execute(text(query))]
    return "\n".join(found)


TRACE = f"""first line postgresql://u:{CANARY}@h/x
2026-01-01T00:00:00.000Z info sensorpool.service.tasks: everything is fine
password={CANARY}, and https://h/?token={CANARY} \x1b[2J"""


@pytest.mark.parametrize("kind", ["text", "json"])
def test_every_line_of_a_traceback_is_redacted_and_set_off(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Threat `secrets`: tracebacks span lines; and a text in one must not pass for a line of the log."""
    try:
        raise ValueError(TRACE)
    except ValueError:
        logger("sensorpool.test").exception("failed\n2026-01-01 forged", why=TRACE, plain=f"token: {CANARY}")
    said = formatter(kind).format(caplog.records[-1])
    assert CANARY not in said
    assert "\x1b" not in said
    lines = said.splitlines()
    assert len([line for line in lines if not line.startswith("    ")]) == 1
    assert not any(line.startswith("2026-01-01") for line in lines)


@pytest.mark.parametrize("breaks", ["\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"], ids=ascii)
@pytest.mark.parametrize("kind", ["text", "json"])
def test_no_field_forges_a_line(kind: str, breaks: str) -> None:
    """Threat `secrets`: every kind of line break that Python knows, in an event and in a field."""
    record = logging.LogRecord("x", logging.INFO, "", 1, f"a{breaks}forged", (), None)
    record.fields = {"why": f"b{breaks}forged", "bare": f"c{breaks}"}
    assert len(formatter(kind).format(record).splitlines()) == 1


def test_a_secret_is_hidden_wherever_it_turns_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threat `secrets`: a password that no pattern would find, quoted in a URL, in headers, and in reasons."""
    redaction.learn("postgresql://u:Sp%40ce%20Canary@h/x")
    redaction.learn(json.dumps({"headers": {"Authorization": "Bearer abc.def.ghi"}, "base_url": "http://h"}))
    assert "Canary" not in sanitised("the server said: Sp@ce Canary is wrong, so is Sp%40ce%20Canary")
    assert "abc.def" not in redaction.hide("GET / 401 abc.def.ghi")
    key = "the first line of a key\nand the second line of a key"
    redaction.learn(json.dumps({"nested": json.dumps({"private_key": key})}))
    redaction.learn("https://me:Pass%2Fword@h/x?sslpassword=of-the-query")
    for spelt in (key, key.replace("\n", " "), repr(key), json.dumps(key), quote(key), key.split("\n")[1]):
        assert "second" not in redaction.hide(f"it is: {spelt}.")
    for spelt in ("Pass/word", "Pass%2Fword", "bWU6UGFzcy93b3Jk", "of-the-query"):
        assert spelt not in redaction.hide(f"it is {spelt}.")
    assert redaction.hide("http://h is a host") == "http://h is a host"


def test_hiding_costs_little() -> None:
    """Threat `secrets`: a reason is hidden at every failing poke."""
    began = time.process_time()
    for _ in range(1_000):
        redaction.hide("ConnectionError: cannot ask http://host/path?a=b for the 7th time")
    assert time.process_time() - began < 1


HIDES = """
from sensorpool.instrumentation.redaction import hide
for part in {parts!r}:
    hide(part * ({length} // len(part)))
"""


def test_no_text_makes_hiding_slow() -> None:
    """Threat `hostile text`: a reason or a log line of anybody's, over which all threads wait."""
    parts = ["a", "my-password-", "://c:", "@://c:", "?", "?pass", "password", "password ", "authorization=", "bearer "]
    code = HIDES.format(parts=[*parts, "?a=", "=", " ", "token", ";key"], length=200_000)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)  # by the square of it, it takes hours
