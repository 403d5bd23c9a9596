"""The pool's pages in Airflow's API server: who sees what, who may do what, and what a pool that is away does."""

import datetime as dt
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import httpx
import pytest

pytest.importorskip("airflow.providers.standard")

from airflow.api_fastapi.app import create_app, get_auth_manager, purge_cached_app
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, timezone

from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.admin.actions import recorded
from sensorpool.airflow.configuration import SCHEMA
from sensorpool.airflow.plugin import SensorpoolPlugin
from sensorpool.airflow.ui import late_pages
from sensorpool.airflow.ui.late_pages import LatePages
from sensorpool.model.states import State
from sensorpool.store import inspecting
from sensorpool.store.migrate import upgrade
from tests.airflow.auth_by_name import user
from tests.airflow.metadata import Metadata
from tests.support.web import post, served

PATH = "sensorpool.sensors.PathSensor"
EXTERNAL = "airflow.providers.standard.sensors.external_task.ExternalTaskSensor"
FIRST = timezone.datetime(2026, 11, 1, 1)
HOUR = dt.timedelta(hours=1)
TASK = "/sensorpool/task?dag_id={}&run_id=r&task_id={}&map_index=%7BMAP_INDEX%7D&embedded=1"
RUN = "/sensorpool/run?dag_id={}&run_id=r&embedded=1"


@pytest.fixture(scope="module")
def dags(airflow_metadata: Metadata) -> str:
    """Two DAGs in Airflow; return the run of `orders` at its first hour. There is none at its second."""
    for dag_id in ("orders", "billing"):
        with DAG(dag_id, schedule=None, start_date=FIRST) as dag:
            EmptyOperator(task_id="made")
        kept = airflow_metadata.add_dag(dag)
        if dag_id == "orders":
            run_id = airflow_metadata.add_run(kept, FIRST, "success")
            airflow_metadata.set_states("orders", run_id, {("made", -1): "success"})
            airflow_metadata.add_run(kept, FIRST + 2 * HOUR, "queued")
    return run_id


@pytest.fixture
def pool(postgres_database: str, redis_url: str, dags: str) -> Iterator[Pool]:
    """A pool in which tasks of `orders` and `billing` wait for one path, and `billing` for hours of `orders`."""
    where = {"database_url": postgres_database, "database_schema": SCHEMA, "redis_url": redis_url}
    upgrade(postgres_database, schema=SCHEMA)
    pool = Pool(Settings.load(**where, sensors_enabled=(PATH, EXTERNAL)))
    for dag_id in ("orders", "billing"):
        pool.register(PATH, {"path": "/both"}, dag_id=dag_id, task_id="path", run_id="r", external_id=f"id-{dag_id}")
    dates = [(FIRST + number * HOUR).isoformat() for number in range(2)]
    context = {"external_dag_id": "orders", "external_task_ids": ["made", "gone"], "logical_dates": dates}
    context |= {"external_task_group_id": None, "allowed_states": ["success"], "skipped_states": []}
    context |= {"failed_states": [], "soft_fail": False}
    hours = {"op_classpath": EXTERNAL, "poke_context": context, "dag_id": "billing", "task_id": "hours", "run_id": "r"}
    pool.register_many([hours], try_out=False)
    yield pool
    pool.close()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, dags: str) -> Callable[..., Any]:
    """Returns what serves Airflow's API and UI, with options of the section `[sensorpool]`."""
    monkeypatch.setenv("AIRFLOW__CORE__AUTH_MANAGER", "tests.airflow.auth_by_name.AuthByName")
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "of this test, and long enough for its hash " * 3)

    @contextmanager
    def start(**options: object) -> Iterator[str]:
        for name, value in options.items():
            monkeypatch.setenv(f"AIRFLOW__SENSORPOOL__{name.upper()}", str(value))
        purge_cached_app()
        pages = LatePages()
        monkeypatch.setattr(SensorpoolPlugin.fastapi_apps[0]["app"], "pages", pages)
        with closing(pages), served(create_app(apps="core")) as found:
            yield found
        purge_cached_app()

    return start


@pytest.fixture
def address(serve: Callable[..., Any], pool: Pool) -> Iterator[str]:
    """Airflow's API server, with the pages of the pool."""
    urls = {"database_url": pool.settings.database_url, "redis_url": pool.settings.redis_url}
    with serve(**urls) as found:
        yield found


@contextmanager
def browser(address: str, name: str) -> Iterator[httpx.Client]:
    """The browser of a user who has logged in to Airflow."""
    token = get_auth_manager().generate_jwt(user(name))
    with httpx.Client(base_url=address, cookies={"_token": token}, timeout=30) as client:
        yield client


def get(address: str, name: str, path: str) -> httpx.Response:
    with browser(address, name) as client:
        return client.get(path)


def state_of(pool: Pool, instance_id: int) -> str:
    return str(pool.database.read(inspecting.instance, instance_id)["state"])  # type: ignore[index]


def test_airflow_has_the_plugin_and_nothing_in_it_takes_the_direct_end_away(address: str) -> None:
    plugins = get(address, "admin", "/api/v2/plugins").json()["plugins"]
    [found] = [plugin for plugin in plugins if plugin["name"] == "sensorpool"]
    assert [view["destination"] for view in found["external_views"]] == ["nav", "dag_run", "task_instance"]
    routes = [view["url_route"] for view in found["external_views"]]
    assert len(set(routes)) == len(routes)
    for name in ("listeners", "operator_extra_links", "global_operator_extra_links"):
        assert found[name] == []


@pytest.mark.parametrize(
    "path", ["/sensorpool/", "/sensorpool/conditions", RUN.format("orders"), "/sensorpool/quarantine"]
)
def test_who_is_not_logged_in_sees_nothing(address: str, path: str) -> None:
    answer = httpx.get(f"{address}{path}")
    assert answer.status_code == 401
    assert "orders" not in answer.text
    assert httpx.get(f"{address}{path}", cookies={"_token": "x.y.z"}).status_code in (401, 403)
    found = get(address, "stranger", path)
    assert found.status_code == (200 if path.endswith("conditions") else 403)
    assert "orders</a>" not in found.text
    assert "/instances/" not in found.text


def test_an_admin_sees_all(address: str) -> None:
    with browser(address, "admin") as admin:
        overview = admin.get("/sensorpool/")
        assert overview.status_code == 200
        assert "room in the triggerers</dt>" in overview.text  # the figure: tests/e2e/test_ui.py
        conditions = admin.get("/sensorpool/conditions").text
        assert "1 to 2 of 2" in conditions
        assert 'href="/sensorpool/conditions/' in conditions
        assert admin.get("/sensorpool/quarantine").status_code == 200
        assert admin.get("/sensorpool/static/sensorpool.css").status_code == 200
        assert "<dt>waits since</dt>" in admin.get("/sensorpool/conditions/1").text
        run = admin.get(RUN.format("billing")).text
        assert "2 of 2 wait" in run
        assert '<body class="embedded">' in run


def test_a_user_of_one_dag_knows_of_others_as_a_number(address: str) -> None:
    with browser(address, "clerk") as clerk:
        assert clerk.get("/sensorpool/").status_code == 403
        for path in ("/sensorpool/conditions", TASK.format("orders", "path")):
            page = clerk.get(path)
            assert page.status_code == 200
            assert "orders" in page.text
            assert "billing" not in page.text
        assert "<dt>waits since</dt>" not in clerk.get("/sensorpool/conditions/1").text
        assert "1, by the same pokes" in clerk.get(TASK.format("orders", "path")).text
        for path in (TASK.format("billing", "path"), RUN.format("billing"), "/sensorpool/quarantine"):
            assert clerk.get(path).status_code == 403
        assert clerk.get("/sensorpool/instances/2").status_code == 404


def test_a_right_to_a_dag_is_none_to_its_tasks(address: str, pool: Pool) -> None:
    with browser(address, "auditor") as auditor:
        assert "1 to 1 of 1" in auditor.get("/sensorpool/conditions").text
        assert auditor.get(TASK.format("orders", "path")).status_code == 200
        assert auditor.get(TASK.format("billing", "path")).status_code == 403
        assert post(auditor, "/sensorpool/conditions", "/sensorpool/instances/2/cancel").status_code == 404
    assert state_of(pool, 2) == State.SENSING


def test_a_form_that_comes_slowly_keeps_no_page_from_others(
    serve: Callable[..., Any], pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_pages, "AT_ONCE", 1)
    urls = {"database_url": pool.settings.database_url, "redis_url": pool.settings.redis_url}
    with serve(**urls) as address, ExitStack() as stack:
        place = address.removeprefix("http://").split(":")
        for _ in range(3):
            slow = stack.enter_context(socket.create_connection((place[0], int(place[1])), timeout=30))
            slow.sendall(b"POST /sensorpool/instances/1/cancel HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\nform_")
        assert get(address, "admin", "/sensorpool/conditions").status_code == 200
        with browser(address, "admin") as admin:
            assert admin.post("/sensorpool/instances/1/cancel", content=b"x" * 20_000).status_code == 413


def test_a_task_that_is_not_pooled_is_a_quiet_line(address: str) -> None:
    page = get(address, "admin", TASK.format("orders", "made"))
    assert page.status_code == 200
    assert "knows of no try of this task" in page.text


def test_what_changes_a_task_takes_what_changes_a_wait(address: str, pool: Pool) -> None:
    for name, status in (("viewer", 403), ("accountant", 404)):
        with browser(address, name) as guest:
            assert post(guest, "/sensorpool/conditions", "/sensorpool/instances/1/cancel").status_code == status
    assert state_of(pool, 1) == State.SENSING
    with browser(address, "clerk") as clerk:
        forged = {"sec-fetch-site": "cross-site"}
        assert clerk.post("/sensorpool/instances/1/cancel", headers=forged).status_code == 403
        assert post(clerk, "/sensorpool/conditions", "/sensorpool/instances/2/cancel").status_code == 404
        answer = post(clerk, "/sensorpool/conditions", "/sensorpool/instances/1/hand-back")
        assert (answer.status_code, answer.headers["location"]) == (303, "/sensorpool/instances/1")
    assert state_of(pool, 1) != State.SENSING
    assert [each["who"] for each in recorded(pool, None, 10)] == ["clerk"]


def test_the_runs_of_an_external_task_sensor_are_told_with_their_neighbours(address: str, dags: str) -> None:
    said = get(address, "admin", TASK.format("billing", "hours")).text
    assert f"the run {dags} of orders is success, its task made is success, it has no task gone" in said
    assert "there is no run of orders at 2026-11-01 02:00:00 UTC: the nearest before it is of" in said
    assert "2026-11-01 01:00:00 UTC (1 h before), success, and the nearest after it is of" in said
    assert "2026-11-01 03:00:00 UTC (1 h after), queued" in said
    hidden = get(address, "accountant", TASK.format("billing", "hours")).text
    assert "they are of the DAG orders, which you may not see" in hidden
    assert "success," not in hidden


def test_wrong_settings_break_no_airflow(serve: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    with serve(database_url="nonsense", redis_url="redis://127.0.0.1:1/0") as address:
        for _ in range(2):
            answer = get(address, "admin", "/sensorpool/")
            assert answer.status_code == 503
            assert "nonsense" not in answer.text
        assert get(address, "admin", "/api/v2/version").status_code == 200
    assert sum("cannot be made" in record.getMessage() for record in caplog.records) == 1


def test_a_pool_that_is_away_is_a_line(serve: Callable[..., Any], pool: Pool) -> None:
    gone = "postgresql+psycopg://x@127.0.0.1:1/gone"
    with serve(database_url=gone, redis_url="redis://127.0.0.1:1/0") as address:
        assert "does not answer" in get(address, "admin", "/sensorpool/").text
        assert get(address, "admin", "/sensorpool/conditions").status_code == 503


def test_a_pool_in_the_memory_of_a_process_cannot_be_looked_at(serve: Callable[..., Any], pool: Pool) -> None:
    with serve(database_url=pool.settings.database_url, redis_url="memory://") as address:
        assert get(address, "admin", "/sensorpool/").status_code == 503


def test_pages_that_hang_leave_airflow_its_threads(
    serve: Callable[..., Any], pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Redis that takes connections, and answers nothing, holds as many pages as may be asked for at a time."""
    monkeypatch.setattr(late_pages, "PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        redis = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        with serve(database_url=pool.settings.database_url, redis_url=redis) as address, ThreadPoolExecutor(60) as many:
            pages = [many.submit(get, address, "admin", "/sensorpool/") for _ in range(60)]
            until("pages that wait for Redis", lambda: sum(page.done() for page in pages) >= 60 - late_pages.AT_ONCE)
            held = [page for page in pages if not page.done()]
            assert get(address, "admin", "/api/v2/version").status_code == 200
            busy = [page.result() for page in pages if page not in held]
    assert held, "no page hung"
    assert any("the pages of the pool are busy" in answer.text for answer in busy)
