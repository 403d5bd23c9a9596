"""The one-process service from another terminal: the tour of the README, and the state after the service has ended."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from socket import gethostname

import pytest

from harness.service import kill_tree
from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.admin import status
from sensorpool.leases import standalone_files
from sensorpool.leases.redis_store import connect
from sensorpool.model.values import shard_ranges
from sensorpool.service.standalone import Standalone
from tests.support.scrapes import ask, free_port, scrape, total

pytestmark = pytest.mark.processes


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return os.environ | {
        "XDG_STATE_HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "SENSORPOOL_TICK": "3",
        "SENSORPOOL_SHARDS": "2",
    }


@pytest.fixture
def standalone(environment: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", "sensorpool", "standalone"], env=environment, cwd=tmp_path)
    yield process
    kill_tree(process)


TERMINAL = """
import json, sys
from sensorpool.cli.main import main
for line in json.loads(sys.argv[1]):
    try:
        main(line, standalone_mode=False)
    except SystemExit as end:
        print("exit", end.code)
"""


def test_another_terminal_sees_it(
    standalone: subprocess.Popen[bytes], environment: dict[str, str], tmp_path: Path
) -> None:
    def terminal(*lines: list[str]) -> list[str]:
        """Type lines in another terminal, which is quicker than a process for each."""
        done = subprocess.run(
            [sys.executable, "-c", TERMINAL, json.dumps(lines)],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    seen = tmp_path / "sensorpool" / "sensorpool.db.standalone"
    until("the first ticks", lambda: seen.exists() and seen.read_text().count(":state") == 2)
    assert seen.stat().st_mode & 0o777 == 0o600
    terminal(["register", "sensorpool.sensors.PathSensor", json.dumps({"path": str(tmp_path / "arrived")})])
    until("its poke", lambda: ":pokes" in seen.read_text())
    asked = ["show", "1"], ["status"], ["doctor"], ["health"]
    told = terminal(*([*line, "--json"] for line in asked), ["health", "--self"])
    show, status, doctor, said_doctor, health, said, of_itself, said_itself = told
    assert json.loads(show)["last_outcome"] == "not_landed"
    assert json.loads(status)["workers"][0]["worker"].startswith("standalone@")
    assert all(each["last_tick_at"] for each in json.loads(status)["ranges"])
    assert [each for each in json.loads(doctor) if each["level"] == "wrong"] == []
    assert json.loads(health) == {"healthy": True, "problems": []}
    assert (said_doctor, said, of_itself, said_itself) == ("exit 0", "exit 0", "healthy", "exit 0")
    standalone.send_signal(signal.SIGTERM)
    standalone.wait(60)
    assert not seen.exists()
    line, said, status, *_ = terminal(["health"], ["status", "--json"])
    assert said == "exit 1"
    stopped = (
        f"ticks have stopped: `sensorpool standalone` is not running, has other settings, or cannot write {seen}; "
    )
    assert line.startswith(stopped)
    [problem] = json.loads(status)["problems"]
    assert problem.startswith(stopped)


def test_how_old_the_state_is_that_others_see(tmp_path: Path) -> None:
    settings = Settings.load(database_url=f"sqlite:///{tmp_path / 'pool.db'}")
    path = standalone_files.path_of(settings)
    assert standalone_files.last_written(settings).endswith(
        f"is not running, has other settings, or cannot write {path}"
    )
    standalone_files.StateFile(settings).write()
    os.utime(path, (time.time() - 90, time.time() - 90))
    assert re.search(
        r"was killed, hangs, or cannot write .*: it last did so 9\d s ago$", standalone_files.last_written(settings)
    )
    os.utime(path, (time.time() + 3600, time.time() + 3600))  # the clock was put back
    assert " 0 s ago" in standalone_files.last_written(settings)
    path.unlink()
    path.parent.joinpath("loop").symlink_to("loop")
    looping = Settings.load(database_url=f"sqlite:///{tmp_path / 'loop' / 'pool.db'}")
    assert "cannot be read" in standalone_files.last_written(looping)


def test_metrics_of_the_one_process(tmp_path: Path) -> None:
    port = free_port()
    settings = Settings.load(database_url=f"sqlite:///{tmp_path / 'pool.db'}", tick=1, metrics_port=port)
    with Standalone(settings):
        until("the process to be ready", lambda: ask(port, "/readyz")[0] == 200)
        path = {"path": str(tmp_path / "arrived")}
        pool = Pool(settings)
        pool.register("sensorpool.sensors.PathSensor", path)
        until("its poke", lambda: total(scrape(port), "sensorpool_pokes_total") >= 1)
        until("the figures", lambda: total(scrape(port), "sensorpool_sensing") == 1)
        pool.close()
    assert ask(port, "/healthz") == (0, None)


def test_what_it_cannot_poke_is_told(tmp_path: Path) -> None:
    settings = Settings.load(database_url=f"sqlite:///{tmp_path / 'pool.db'}", tick=0.2)
    with Standalone(settings):
        scripted = "harness.scripted.ScriptedSensor"
        pool = Pool(settings.model_copy(update={"sensors_enabled": (scripted,)}))
        pool.register(scripted, {"folder": str(tmp_path), "name": "a"})
        [told] = until("its line", lambda: status.status(pool)["unpokeable"])
        assert (told["op_classpath"], told["groups"]) == (scripted, 1)
        assert f"standalone@{gethostname()} cannot poke it" in told["cause"]
    pool.close()


@pytest.mark.parametrize(
    "text", ["", "x", "[]", '{"a": 1}', '{"a": ["zset", {"x": "y"}, null]}', '{"a": ["hash", {}, 0]}']
)
def test_a_file_that_says_nothing_is_nobody(tmp_path: Path, text: str) -> None:
    settings = Settings.load(database_url=f"sqlite:///{tmp_path / 'pool.db'}")
    standalone_files.path_of(settings).write_text(text)
    standalone_files.take_up(settings)
    standalone_files.take_up(Settings.load(database_url="sqlite://"))


def test_what_is_written_is_read_with_its_time_left(tmp_path: Path) -> None:
    settings = Settings.load(database_url=f"sqlite:///{tmp_path / 'pool.db'}")
    client = connect("memory://")
    client.flushall()
    client.set("s", "1", px=50_000)
    client.hset("h", "field", "value")
    client.zadd("z", {"member": 1.5})
    written = standalone_files.StateFile(settings)
    written.write()
    client.flushall()
    standalone_files.take_up(settings)
    assert (client.get("s"), client.hgetall("h")) == ("1", {"field": "value"})
    assert client.zrange("z", 0, -1, withscores=True) == [("member", 1.5)]
    assert 40_000 < client.pttl("s") <= 50_000
    written.remove()
    client.flushall()


def test_more_ranges_than_jobs_at_once_are_all_looked_at_each_tick(tmp_path: Path) -> None:
    """In memory Celery acknowledges jobs every two seconds only; a prefetch of a few would leave the others waiting."""
    settings = Settings.load(database_url=f"sqlite:///{tmp_path / 'pool.db'}", shards=64, tick=1)
    with Standalone(settings) as standalone:
        leases = standalone.worker.leases
        ranges = shard_ranges(settings.shards, settings.shard_code_upper_limit)
        for _ in range(3):
            seen = {place: state.last for place, (_, state) in enumerate(leases.look(ranges))}
            until(
                "a tick of each range",
                lambda seen=seen: all(state.last > seen[place] for place, (_, state) in enumerate(leases.look(ranges))),
                20,
            )
