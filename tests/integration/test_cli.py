"""The command line: its output, its exit codes, and one clear line for each mistake."""

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from harness.forked_cli import CLI
from harness.until import until
from sensorpool import Key, Pool, Registration, Settings
from sensorpool.cli.main import main
from sensorpool.store import inspecting
from sensorpool.store.migrate import upgrade

pytestmark = pytest.mark.processes

Run = Callable[..., subprocess.CompletedProcess[str]]
DEMO = str(Path(__file__).parents[2] / "examples/demo/demo.py")
PATH_SENSOR = "sensorpool.sensors.PathSensor"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the command line on an SQLite database that has its tables."""
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    upgrade(url)

    def run_it(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        given = os.environ | {"SENSORPOOL_DATABASE_URL": url} | environment
        return CLI.run(arguments, given, tmp_path, stdin=stdin, limit=60)

    return run_it


def test_what_was_handed_back_is_not_called_cancelled(run: Run, tmp_path: Path) -> None:
    with closing(Pool(Settings.load(database_url=f"sqlite:///{tmp_path / 'pool.db'}"))) as pool:
        ids = [pool.register(PATH_SENSOR, {"path": f"/{n}"}, external_id=f"task {n}").id for n in range(3)]
        pool.settler.hand_back({ids[0]: "its pool is drained", ids[1]: "likewise"})
        pool.cancel(ids[2])
    rows = {line.split()[0]: line for line in run("list").stdout.splitlines() if line.strip()}
    assert [("handed back" in rows[str(each)], "cancelled" in rows[str(each)]) for each in ids] == [
        (True, False),
        (True, False),
        (False, True),
    ]
    assert "1 cancelled, 2 handed back" in run("status").stdout
    assert json.loads(run("status", "--json").stdout)["states"]["handed_back"] == 2


def test_register_show_list_cancel_wait(run: Run) -> None:
    done = run("register", PATH_SENSOR, '{"path": "/nowhere/x"}', "--dag-id=d", "--task-id=t", "--run-id=r", "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert {"id", "hashcode", "shardcode", "group_id", "created"} <= made.keys()
    number = str(made["id"])
    again = run(
        "register",
        "sensorpool.sensors:PathSensor",
        '{ "path":"/nowhere/x" }',
        "--dag-id=d",
        "--task-id=t",
        "--run-id=r",
        "--json",
    )
    assert (json.loads(again.stdout)["id"], json.loads(again.stdout)["created"]) == (made["id"], False)
    shown = json.loads(run("show", number, "--json").stdout)
    assert shown["poke_context"] == {"path": "/nowhere/x"}
    assert shown["state"] == "sensing"
    assert {
        "reason",
        "waiting_since",
        "members",
        "last_poke_at",
        "last_outcome",
        "next_poke_at",
        "timeout_at",
    } <= shown.keys()
    listed = json.loads(run("list", "--state=sensing", "--dag-id=d", "--json").stdout)
    assert [row["id"] for row in listed] == [made["id"]]
    assert json.loads(run("list", "--dag-id=other", "--json").stdout) == []
    assert run("wait", number, "--timeout=0").returncode == 1
    assert run("cancel", number).returncode == 0
    assert run("cancel", number).returncode == 0
    assert json.loads(run("show", number, "--json").stdout)["state"] == "cancelled"
    for command in (("status",), ("show", number), ("list",), ("config",), ("db", "current"), ("db", "check")):
        done = run(*command)
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout


def test_register_from_lines_reports_the_refused_by_number(run: Run) -> None:
    good = {"op_classpath": PATH_SENSOR, "poke_context": {"path": "/nowhere/x"}, "dag_id": "d", "run_id": "r"}
    lines = [
        json.dumps(good | {"task_id": "t1", "poke_interval": 10, "timeout": 100, "soft_fail": True, "map_index": 3}),
        "not json",
        json.dumps(good | {"task_id": "t2"}),
        json.dumps(
            good | {"task_id": "t1", "map_index": 3, "poke_context": {"path": "/nowhere/y"}}
        ),  # another condition
        json.dumps({"op_classpath": "os.system", "poke_context": {}}),
        '{"op_classpath": "x.Y", "poke_context": {"a": 1, "a": 2}}',
        '{"op_classpath": "x.Y", "poke_context": ' + "[" * 2000 + "]" * 2000 + "}",
        json.dumps({"op_classpath": 5, "poke_context": {}}),
        json.dumps(good),  # no task_id
        json.dumps(good | {"task_id": "t3", "poke_context": {"path": "relative"}}),
        "[]",
        json.dumps(good | {"task_id": "t4", "poke_context": {"path": "x" * 900_000}}),
        "",
        json.dumps(good | {"task_id": "t2"}),  # the same once more
    ]
    done = run("register", "--from", "-", "--json", stdin="\n".join(lines))
    assert done.returncode == 1
    answer = json.loads(done.stdout.splitlines()[-1])
    assert [each["line"] for each in answer["refused"]] == [2, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert all("\n" not in each["reason"] and len(each["reason"]) < 400 for each in answer["refused"])
    assert answer["groups"] == 1
    assert answer["registered"] == 3
    listed = json.loads(run("list", "--json").stdout)
    assert {row["task_id"] for row in listed} == {"t1", "t2"}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ((), "dcba"),
        (("--task-id=t1",), "ba"),
        (("--run-id=r2", "--dag-id=d"), "dc"),
        (("T3",), "d"),
        (("/X_c",), "c"),
        (("100%",), "b"),
        (("%",), "b"),
        (("sensors.path",), "dcba"),
        (("no such",), ""),
        (("--ending=cancelled",), "b"),
        (("--overdue",), "c"),
        (("--overdue", "--state=failed"), ""),
        (("--before", "c"), "ba"),
        (("--limit=1", "--before", "c"), "b"),
        (("--dag-id=\udcff",), ""),
    ],
    ids=str,
)
def test_list_takes_what_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], wanted: str
) -> None:
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    upgrade(url)
    monkeypatch.setenv("SENSORPOOL_DATABASE_URL", url)
    tasks: dict[str, dict[str, Any]] = {
        "a": {"key": Key("d", "t1", "r1", 1)},
        "b": {"key": Key("d", "t1", "r1", 2)},
        "c": {"key": Key("d", "t2", "r2"), "timeout": 0.001},
        "d": {"key": Key("d", "t3", "r2")},
    }
    with closing(Pool(Settings.load())) as pool:
        waiting = [
            Registration(sensor=PATH_SENSOR, poke_context={"path": f"/x_{name}"}, **waits)
            for name, waits in tasks.items()
        ]
        made = dict(zip(tasks, (str(instance.id) for instance in pool.register_many(waiting)), strict=True))
        pool.cancel(int(made["b"]), "100%_of it")
        overdue = pool.database.read(inspecting.instance, int(made["c"]))
        assert overdue is not None
        until("a deadline", lambda: pool.database.read(pool.database.now) > overdue["timeout_at"])
    listed = CliRunner().invoke(main, ["list", "--json", *(made.get(each, each) for each in options)])
    assert [str(row["id"]) for row in json.loads(listed.stdout)] == [made[name] for name in wanted]


def test_cancel_looks_all_up_first_and_says_each(run: Run) -> None:
    made = [str(json.loads(run("register", PATH_SENSOR, '{"path": "/x"}', "--json").stdout)["id"]) for _ in range(2)]
    done = run("cancel", made[0], "99999999", made[1])
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no instance 99999999" in done.stderr
    assert {row["state"] for row in json.loads(run("list", "--json").stdout)} == {"sensing"}
    assert run("cancel", *made).stdout == "".join(f"{each} cancelled\n" for each in made)


def test_a_line_that_is_no_text_is_refused_and_the_others_are_not(run: Run, tmp_path: Path) -> None:
    good = json.dumps({"op_classpath": PATH_SENSOR, "poke_context": {"path": "/nowhere/ä"}}, ensure_ascii=False)
    (tmp_path / "lines").write_bytes(b"\n".join([good.encode(), good.encode("latin-1"), b"\xff\xfe", good.encode()]))
    done = run("register", "--from", "lines")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert answer["registered"] == 2
    assert answer["refused"] == [{"line": n, "reason": "the line is not UTF-8 text"} for n in (2, 3)]


def test_what_was_registered_is_counted_when_it_is_interrupted(run: Run, tmp_path: Path) -> None:
    """Ctrl-C while it waits for more lines: a thousand are registered, ten more were read."""
    line = json.dumps({"op_classpath": PATH_SENSOR, "poke_context": {"path": "/nowhere/x"}}) + "\n"
    with subprocess.Popen(
        [sys.executable, "-m", "sensorpool", "register", "--from", "-"],
        env=os.environ | {"SENSORPOOL_DATABASE_URL": f"sqlite:///{tmp_path / 'pool.db'}"},
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(line * 1_010)
        process.stdin.flush()
        with closing(Pool(Settings.load(database_url=f"sqlite:///{tmp_path / 'pool.db'}"))) as pool:
            until("a thousand", lambda: pool.database.read(inspecting.count_waiting)[1] == 1_000)
        process.send_signal(signal.SIGINT)
        said, complaint = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "Traceback" not in complaint
    answer = json.loads(said)
    assert answer["registered"] in {0, 1_000}, "it was interrupted while it counted, or afterwards"
    assert answer["stopped"].startswith("interrupted at line 1")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_letters_that_the_locale_has_not_end_nothing(run: Run, tmp_path: Path, encoding: str) -> None:
    run("register", PATH_SENSOR, '{"path": "/x"}', "--dag-id=d-€", "--task-id=t", "--run-id=r")
    given = {"PYTHONIOENCODING": encoding}
    done = run("list", **given)
    assert (done.returncode, done.stderr) == (0, "")
    assert "sensing" in done.stdout
    assert json.loads(run("list", "--json", **given).stdout)[0]["dag_id"] == "d-€"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("register", "os.system", "{}"), 2, "not enabled"),
        (("register", "nonsense", "{}"), 2, "class path"),
        (("register", PATH_SENSOR, "[]"), 2, "JSON object"),
        (("register", PATH_SENSOR, "{"), 2, "not JSON"),
        (("register", PATH_SENSOR, '{"path": NaN}'), 2, "NaN"),
        (("register", PATH_SENSOR, '{"path": "/a\\u0000b"}'), 2, "NUL"),
        (("register", PATH_SENSOR, '{"path": ' + "[" * 2000 + "]" * 2000 + "}"), 2, "deeper"),
        (("register", "sensorpool.sensors.HttpSensor", '{"url": "no url"}'), 2, "url"),
        (("register", PATH_SENSOR), 2, "CONTEXT_JSON"),
        (("register", "--from", "/nowhere/at/all"), 2, "No such file"),
        (("register", "--from", "-", "--timeout=5"), 2, "--timeout does not go with --from: name it in the lines"),
        (("register", "--from", "-", "--soft-fail", "--json"), 2, "--soft-fail does not go with --from"),
        (("register", "--from", "-", "--map-index=-1"), 2, "--map-index does not go with --from"),
        (("register", PATH_SENSOR, '{"path": "/x"}', "--try-number=2"), 2, "map_index and try_number belong to a key"),
        (("show", "12345"), 1, "there is no instance 12345"),
        (("cancel", "12345"), 1, "there is no instance 12345"),
        (("wait", "12345"), 1, "there is no instance 12345"),
        (("show", "x"), 2, "not a valid integer"),
        (("nonsense",), 2, "No such command 'nonsense'."),
        (("statsu",), 2, "No such command 'statsu'. Did you mean 'status'?"),
        (("db", "upgrad"), 2, "No such command 'upgrad'. Did you mean 'upgrade'?"),
        (
            ("register", "sensorpool.sensors.Pathsensr", '{"path": "/x"}'),
            2,
            f"sensorpool.sensors.Pathsensr is not enabled (did you mean {PATH_SENSOR}?): add it to ",
        ),
        (("try", "sensorpool.sensor.PathSensor"), 2, f"(did you mean {PATH_SENSOR}?)"),
        (("register", "sensorpool.sensors.KafkaSensor", "{}"), 2, "sensorpool.sensors.KafkaSensor is not enabled: add"),
        (("health",), 1, "standalone"),
        (("wake", "--prefix", "s3://x/"), 2, "name a Redis in SENSORPOOL_REDIS_URL"),
    ],
)
def test_a_mistake_is_one_clear_line(run: Run, arguments: tuple[str, ...], code: int, says: str) -> None:
    done = run(*arguments)
    assert done.returncode == code, done
    said = (done.stderr or done.stdout).strip().splitlines()
    assert says in said[-1], said
    assert len([line for line in said if not line.startswith(("Usage:", "Try")) and line]) == 1, said
    assert "Traceback" not in done.stderr
    assert json.loads(run("list", "--json").stdout) == []


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"SENSORPOOL_TICK": "-1"}, "SENSORPOOL_TICK"),
        ({"SENSORPOOL_TICK": "soon"}, "SENSORPOOL_TICK"),
        ({"SENSORPOOL_LEASE_TTL": "3"}, "SENSORPOOL_HEARTBEAT"),
        ({"SENSORPOOL_DATABASE_URL": "nonsense"}, "SENSORPOOL_DATABASE_URL"),
        ({"SENSORPOOL_DATABASE_URL": "nosuch://x/y"}, "no database is called"),
        ({"SENSORPOOL_DATABASE_URL": "sqlite:////proc/nowhere/x.db"}, "folder"),
        ({"SENSORPOOL_REDIS_URL": "http://x"}, "SENSORPOOL_REDIS_URL"),
        ({"SENSORPOOL_SENSORS_ENABLED": "not a path"}, "SENSORPOOL_SENSORS_ENABLED"),
    ],
)
def test_a_bad_setting_is_one_clear_line(run: Run, environment: dict[str, str], says: str) -> None:
    done = run("status", **environment)
    assert done.returncode in {1, 2}
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert says in done.stderr


def test_config_hides_secrets(run: Run) -> None:
    secret = {"SENSORPOOL_REDIS_URL": "redis://user:hush@127.0.0.1/0", "SENSORPOOL_BROKER_URL": "amqp://u:hush@h//"}
    for command in (("config",), ("config", "--json")):
        done = run(*command, **secret)
        assert done.returncode == 0, done.stderr
        assert "hush" not in done.stdout + done.stderr
        assert "***" in done.stdout


@pytest.mark.parametrize(
    "command",
    [("status",), ("list",), ("config", "--json"), ("health",), ("db", "check"), ("quarantine",)],
    ids=" ".join,
)
def test_each_command_tells_what_is_no_setting(run: Run, command: tuple[str, ...]) -> None:
    of_others = {
        "SENSORPOOL_CONN_X": "x",
        "SENSORPOOL_WEB_PORT_80_TCP_ADDR": "10.0.0.1",
        "SENSORPOOL_SERVICE_HOST": "h",
    }
    done = run(*command, SENSORPOOL_SHARS="1", **of_others)
    assert done.stderr == "sensorpool: there is no such setting: SENSORPOOL_SHARS (did you mean SENSORPOOL_SHARDS?)\n"
    assert done.stdout


def test_a_probe_of_this_host_looks_for_no_settings(run: Run) -> None:
    assert run("health", "--self", SENSORPOOL_SHARS="1").stderr == ""


def test_a_registration_without_redis_names_it(run: Run) -> None:
    away = {"SENSORPOOL_REDIS_URL": "redis://127.0.0.1:1/0"}
    done = run("register", PATH_SENSOR, '{"path": "/x"}', **away)
    assert done.returncode == 0
    [said] = done.stderr.splitlines()
    assert said.startswith("sensorpool: new conditions wait for their tick: Redis redis://127.0")


@pytest.mark.parametrize("command", [("status",), ("list",), ("health",), ("db", "check")], ids=" ".join)
def test_a_command_that_looks_makes_no_database(tmp_path: Path, command: tuple[str, ...]) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SENSORPOOL_")}
    done = CLI.run(command, environment | {"XDG_STATE_HOME": str(tmp_path)}, tmp_path, limit=60)
    assert done.returncode == 1
    [said] = (done.stdout + done.stderr).splitlines()
    assert f"there is no SQLite file {tmp_path}/sensorpool/sensorpool.db: name the pool's database in " in said
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


PRINTS = """
from sensorpool.cli.output import own_output, print_json

with own_output():
    print("said")
    print_json({"letter": "ä"})
    print("said")
"""


def test_what_other_code_prints_is_not_on_standard_output(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PRINTS], capture_output=True, timeout=60)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"letter": "ä"}), done.stderr
    assert done.stderr.count(b"said") == 2


def test_it_is_a_celery_command_too(run: Run, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "sensorpool", "sensorpool", "list", "--json"],
        env=os.environ | {"SENSORPOOL_DATABASE_URL": f"sqlite:///{tmp_path / 'pool.db'}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize("command", ["worker", "beat"])
def test_worker_and_beat_refuse_in_one_line_what_cannot_work(tmp_path: Path, command: str) -> None:
    """The embedded default serves one process; and a foreign celeryconfig.py in the folder changes nothing."""
    (tmp_path / "celeryconfig.py").write_text("broker_url = 'redis://elsewhere:1/0'\n")
    done = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "sensorpool", command],
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if line.startswith("sensorpool:")]
    assert len(said) == 1
    assert "standalone" in said[0]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("overlay", [False, True], ids=["option", "setting"])
@pytest.mark.parametrize("pool", ["threads", "solo"])
def test_a_worker_refuses_a_pool_that_can_end_nothing(tmp_path: Path, pool: str, overlay: bool) -> None:
    """It refuses the pool before it looks for its servers, which do not exist."""
    (tmp_path / "theirs.py").write_text(f"worker_pool = {pool!r}\n")
    given = {"SENSORPOOL_CONFIG_MODULE": "theirs"} if overlay else {}
    done = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "sensorpool", "worker", *([] if overlay else ["--pool", pool])],
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)} | given,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    [said] = [line for line in done.stderr.splitlines() if line.startswith("sensorpool:")]
    assert f"the worker's pool is {'thread' if pool == 'threads' else pool}" in said
    assert "Traceback" not in done.stderr


def test_the_demo_settles_everything_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, DEMO, "--sensors=60", "--seconds=2", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["sensors"], summary["settled"], summary["lost"], summary["doubled"]) == (60, 60, 0, 0)
    assert (summary["groups"], summary["failed"]) == (36 + 2, 2)
    assert summary["pokes_saved"] > 0
    assert {"pokes", "latency_p50_s", "latency_p99_s", "seconds"} <= summary.keys()


def test_the_demo_tells_its_story(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, DEMO, "--sensors=60", "--seconds=2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    for said in (
        "60 sensors wait for 36 conditions",
        "they would hold 60 worker slots. In the pool they hold 0.",
        "60 landed. ",
        "its poke raised an error",
        "answered 410 Gone",
        "its timeout was over, and one more poke found nothing",
        "every sensor was settled exactly once",
    ):
        assert said in done.stdout


def test_the_demo_keeps_its_pages_open(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as said:
        demo = subprocess.Popen(
            [sys.executable, DEMO, "--sensors=20", "--seconds=1", "--web", "--json"],
            cwd=tmp_path,
            env={**os.environ, "BROWSER": "true"},  # a browser that shows nothing
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    try:
        until("its end", lambda: demo.poll() is not None or "until you press Ctrl-C" in log.read_text())
        [address] = re.findall(r"http://127\.0\.0\.1:\d+/\?token=\S+", log.read_text())
        with httpx.Client(follow_redirects=True) as client:
            page = client.get(address)
            assert page.status_code == 200
            assert "Is it alive?" in page.text
            assert "failed" in client.get(f"{page.url}run?dag_id=demo_failing&run_id=demo").text
            assert httpx.get(str(page.url)).status_code == 401
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 0, log.read_text()
        assert "Traceback" not in log.read_text()
    finally:
        demo.kill()
        demo.wait()


def test_status_has_the_ranges_by_an_option(run: Run) -> None:
    assert run("status").stdout.splitlines()[0] == "0 sensing in 0 groups; 0 success, 0 failed, 0 skipped, 0 cancelled"
    assert "shards" not in run("status").stdout
    lines = run("status", "--ranges", SENSORPOOL_SHARDS="2").stdout.splitlines()
    assert [line.split()[0] for line in lines[-3:]] == ["shards", "0-5000", "5000-10000"]


def test_a_watch_shows_what_changes_until_ctrl_c(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    upgrade(url)
    ours, theirs = os.openpty()
    environment = os.environ | {"SENSORPOOL_DATABASE_URL": url, "COLUMNS": "80", "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-m", "sensorpool", "list", "--watch=0.5"], env=environment, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    try:
        with closing(Pool(Settings.load(database_url=url, redis_url="memory://"))) as pool:
            printed = _read_until(ours, b"0 instances")
            pool.register(PATH_SENSOR, {"path": "/x"}, dag_id="sales", task_id="arrived", run_id="r")
            printed += _read_until(ours, b"arrived")
        assert printed.count(b"\x1b[2J") > 1  # the screen is cleared
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _read_until(terminal: int, words: bytes) -> bytes:
    """Return what is printed on a terminal, as far as some words."""
    printed = b""
    while words not in printed:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, printed
        printed += os.read(terminal, 65536)
    return printed
