"""The pages of a pool: what they tell, to whom, and what their forms do."""

import base64
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy import insert, update
from sqlalchemy.event import listen

from sensorpool import Pool
from sensorpool.admin import actions as recorded
from sensorpool.model.identity import identify
from sensorpool.model.states import State
from sensorpool.store import inspecting
from sensorpool.store.schema import action, landing, poke_group, poke_quarantine, sensor_instance
from sensorpool.web import alone
from sensorpool.web.access import Reader
from sensorpool.web.alone import TokenAccess
from sensorpool.web.application import application
from sensorpool.web.rendering import HEADERS, STATIC
from tests.support.web import Named, post, served

PATH = "sensorpool.sensors.PathSensor"
TOKEN = "a-token-of-this-test-only"
SCRIPT = "<script>alert(1)</script>"
ALL = ("/", "/conditions", "/conditions/1", "/instances/1", "/quarantine", "/actions")
TASK = "/task?dag_id=ours&run_id=r&task_id=t0"
RUN = "/run?dag_id=ours&run_id=r"

pytestmark = pytest.mark.usefixtures("worker")  # what the process remembers of other tests is gone


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    """A pool in which `ours` and `theirs` wait: two tasks for one condition, and one task each for one of its own."""
    pool = make_pool()
    for number, (dag_id, path) in enumerate((("ours", "/both"), ("theirs", "/both"), ("theirs", "/only-theirs"))):
        pool.register(PATH, {"path": path}, dag_id=dag_id, task_id=f"t{number}", run_id="r")
    return pool


@pytest.fixture
def only_theirs(pool: Pool) -> int:
    """The condition for which only `theirs` waits."""
    return int(pool.database.read(inspecting.instance, 3)["group_id"])  # type: ignore[index]


@pytest.fixture
def address(pool: Pool) -> Iterator[str]:
    """The pages, for an operator, a reader of everything, and two who know of `ours` only."""
    readers = (
        Reader("operator", changed=None, operates=True, watches=True, oversees=True),
        Reader("guest", watches=True, oversees=True),
        Reader("our guest", seen=("ours",), watches=True),
        Reader("we", seen=("ours",), changed=("ours",), watches=True),
        Reader("one of us", seen=("ours",)),
        Reader("reader of many", seen={"ours", *(f"d{number}" for number in range(70_000))}),
    )
    with served(application(pool, Named(*readers))) as found:
        yield found


@pytest.fixture
def browse(address: str) -> Iterator[Callable[[str], httpx.Client]]:
    """Returns the browser of a reader."""
    made: list[httpx.Client] = []

    def browser(name: str) -> httpx.Client:
        made.append(httpx.Client(base_url=address, headers={"x-reader": name}))
        return made[-1]

    yield browser
    for client in made:
        client.close()


def state_of(pool: Pool, instance_id: int) -> str:
    return str(pool.database.read(inspecting.instance, instance_id)["state"])  # type: ignore[index]


def edit(pool: Pool, statement: Any) -> None:
    with pool.database.engine.begin() as connection:
        connection.execute(statement)


@pytest.mark.parametrize("path", [*ALL, TASK, RUN])
def test_every_page_refuses_who_is_not_logged_in_and_answers_an_operator(
    address: str, browse: Callable[[str], httpx.Client], path: str
) -> None:
    assert httpx.get(f"{address}{path}").status_code == 401
    answer = browse("operator").get(path)
    assert answer.status_code == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path", ["/conditions/1/poke", "/instances/1/cancel", "/instances/1/hand-back", "/quarantine/q1/release"]
)
def test_no_form_works_without_login_from_another_site_or_by_get(
    address: str, browse: Callable[[str], httpx.Client], pool: Pool, path: str
) -> None:
    assert httpx.post(f"{address}{path}").status_code == 401
    operator = browse("operator")
    ours = {"origin": address}
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
        {"sec-fetch-site": "cross-site"},
        ours | {"sec-fetch-site": "same-site"},
    ):
        assert operator.post(path, headers=headers).status_code == 403
    assert operator.get(path).status_code in (404, 405)
    assert state_of(pool, 1) == State.SENSING
    assert recorded.recorded(pool, None, 10) == []


def test_a_reader_of_one_dag_knows_of_others_as_a_number_only(
    browse: Callable[[str], httpx.Client], only_theirs: int
) -> None:
    guest = browse("our guest")
    pages = {path: guest.get(path) for path in ("/", "/conditions", "/conditions/1", "/instances/1", TASK, RUN)}
    assert {page.status_code for page in pages.values()} == {200}
    for path, page in pages.items():
        assert "theirs" not in page.text, path
    assert "1 to 1 of 1" in pages["/conditions"].text
    assert ">2<" in pages["/conditions/1"].text  # waiters
    assert "1, by the same pokes" in pages["/instances/1"].text
    for path, number in (("/conditions", only_theirs), ("/instances", 2), ("/instances", 3)):
        assert browse("operator").get(f"{path}/{number}").status_code == 200
        unknown, missing = guest.get(f"{path}/{number}"), guest.get(f"{path}/99")
        assert (unknown.status_code, missing.status_code) == (404, 404)
        assert unknown.text.replace(f" {number}", "") == missing.text.replace(" 99", ""), "it can be told apart"
    assert guest.get(f"/conditions/{only_theirs}?after=1").status_code == 404
    for path in ("/quarantine", "/actions", "/task?dag_id=theirs&run_id=r&task_id=t1", "/run?dag_id=theirs&run_id=r"):
        assert guest.get(path).status_code == 403
    assert "of 0" not in guest.get("/conditions?dag=theirs").text
    assert "No condition" in guest.get("/conditions?dag=theirs").text


def test_who_may_not_watch_the_pool_sees_what_waits_for_their_tasks(browse: Callable[[str], httpx.Client]) -> None:
    one = browse("one of us")
    answer = one.get("/")
    assert answer.status_code == 403
    assert "not the pool as a whole" in answer.text
    page = one.get("/conditions")
    assert "1 to 1 of 1" in page.text
    for hidden in ("Overview", "Quarantine", "Actions"):
        assert f">{hidden}</a>" not in page.text
        assert f">{hidden}</a>" in browse("operator").get("/conditions").text


def test_a_reader_of_one_dag_gets_no_dates_of_others_and_no_trouble_of_the_pool(
    browse: Callable[[str], httpx.Client], pool: Pool
) -> None:
    old = 1_577_836_800_000  # 2020-01-01: theirs began to wait then
    for table in (poke_group, sensor_instance):
        column = table.c.registered_at if table is poke_group else table.c.start_date
        of_theirs = table.c.id == (1 if table is poke_group else 2)
        edit(pool, update(table).where(of_theirs).values({column: old}))
    edit(pool, update(poke_group).where(poke_group.c.id == 1).values(next_deadline=old + 1, family=7))
    row = {"family": 7, "digest": b"x" * 32, "op_classpath": PATH, "backend": None, "logical_date": old}
    row |= {"waiting_since": old, "ended_at": old + 1, "ending": "landed", "waiters": 3, "pokes": 1}
    edit(pool, insert(landing).values(row))
    for path in ("/conditions", "/conditions/1", "/instances/1", TASK):
        assert "2020-01-01" in browse("operator").get(path).text or path in ("/instances/1", TASK), path
        assert "2020-01-01" not in browse("one of us").get(path).text, path
        assert "<dt>trouble</dt>" not in browse("one of us").get(path).text, path


def test_what_stops_the_pool_is_the_headline_and_no_next_poke_is_promised(
    browse: Callable[[str], httpx.Client],
) -> None:
    """Nothing ticks here. Who may not watch the pool learns no more than that."""
    for path in ("/conditions/1", "/instances/1", TASK):
        page = browse("operator").get(path).text
        headline = '<p class="problem" role="alert">Ticks have stopped: `sensorpool standalone` is not running'
        assert 0 < page.index(headline) < page.index("not poked yet"), path
        assert "next poke" not in page.lower(), path
        page = browse("one of us").get(path).text
        assert '<p class="problem" role="alert">The pool is not working, so nothing is poked.' in page, path
        assert "standalone" not in page, path
        assert "next poke" not in page.lower(), path


def test_fellow_waiters_are_named_however_many_others_wait(browse: Callable[[str], httpx.Client], pool: Pool) -> None:
    theirs = {"op_classpath": PATH, "poke_context": {"path": "/both"}, "dag_id": "theirs", "run_id": "r"}
    pool.register_many([{**theirs, "task_id": f"m{number}"} for number in range(30)])
    pool.register(PATH, {"path": "/both"}, dag_id="ours", task_id="fellow", run_id="r")
    assert "ours.fellow of r" in browse("one of us").get(TASK).text
    assert "further" not in browse("one of us").get("/conditions/1").text


def test_a_plus_sign_of_a_run_is_one_whether_it_is_quoted_or_not(
    browse: Callable[[str], httpx.Client], pool: Pool
) -> None:
    """Airflow 3.1 puts a run's id into the address as it is; later versions quote it."""
    run_id = "scheduled__2026-11-01T00:00:00+00:00"
    pool.register(PATH, {"path": "/x"}, dag_id="ours", task_id="t 1", run_id=run_id)
    for spelt in (run_id, run_id.replace("+", "%2B").replace(":", "%3A")):
        page = browse("operator").get(f"/task?dag_id=ours&run_id={spelt}&task_id=t%201&map_index={{MAP_INDEX}}")
        assert "t 1" in page.text
        assert "knows of no try" not in page.text
        assert "1 of 1 wait" in browse("operator").get(f"/run?dag_id=ours&run_id={spelt}").text
    for path in ("/task?dag_id=ours&run_id=r", f"/run?dag_id=ours&run_id={'x' * 251}", "/run", "/task?&&=&dag_id"):
        assert browse("operator").get(path).status_code == 422, path


def test_each_of_many_mapped_tasks_is_found(browse: Callable[[str], httpx.Client], pool: Pool) -> None:
    mapped = {"op_classpath": PATH, "dag_id": "ours", "task_id": "mapped", "run_id": "r"}
    many = [{**mapped, "poke_context": {"path": f"/{number}"}, "map_index": number} for number in range(30)]
    pool.register_many(many)
    for number in (0, 29):
        page = browse("operator").get(f"/task?dag_id=ours&run_id=r&task_id=mapped&map_index={number}")
        assert f"mapped[{number}]" in page.text
    assert "knows of no try" in browse("operator").get("/task?dag_id=ours&run_id=r&task_id=mapped").text


def test_a_hidden_waiter_is_asked_for_no_more_than_a_missing_one(
    browse: Callable[[str], httpx.Client], pool: Pool
) -> None:
    edit(pool, update(sensor_instance).where(sensor_instance.c.id == 2).values(on_settled="[1]"))
    guest = browse("one of us")
    statements: list[str] = []
    listen(pool.database.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    assert guest.get("/instances/2").status_code == 404
    of_hidden = statements.copy()
    statements.clear()
    assert guest.get("/instances/99").status_code == 404
    assert statements == of_hidden
    assert browse("operator").get("/instances/2").status_code == 200  # an edited callback is no reason for a 500


def test_an_edited_row_breaks_no_page(browse: Callable[[str], httpx.Client], pool: Pool) -> None:
    edit(pool, update(poke_group).values(poke_interval=0))
    for path in ("/conditions", "/conditions/1", "/instances/1", f"/conditions/1?after={2**63 - 1}"):
        assert browse("operator").get(path).status_code == 200, path
    assert browse("operator").get(f"/conditions/1?after={2**63}").status_code == 422


def test_a_reader_of_more_dags_than_a_statement_takes(browse: Callable[[str], httpx.Client]) -> None:
    page = browse("reader of many").get("/conditions")
    assert "1 to 1 of 1" in page.text
    assert "theirs" not in page.text
    assert browse("reader of many").get("/conditions/1").status_code == 200


def test_a_poke_is_asked_for_by_who_changes_any_waiter_however_many_wait(
    browse: Callable[[str], httpx.Client], pool: Pool, only_theirs: int
) -> None:
    theirs = {"op_classpath": PATH, "poke_context": {"path": "/only-theirs"}, "dag_id": "theirs", "run_id": "r"}
    pool.register_many([{**theirs, "task_id": f"m{number}"} for number in range(60)])
    pool.register(PATH, {"path": "/only-theirs"}, dag_id="ours", task_id="last", run_id="r")
    ours = browse("we")
    assert "Poke now" in ours.get(f"/conditions/{only_theirs}").text
    answer = post(ours, "/conditions", f"/conditions/{only_theirs}/poke")
    said = "takes no orders from other processes: name a Redis in SENSORPOOL_REDIS_URL"
    assert said in answer.text  # of a pool in one process; it is not 403


def test_a_poke_of_what_has_just_landed_is_asked_for_in_vain(browse: Callable[[str], httpx.Client], pool: Pool) -> None:
    """Of an operator, it is no question of permission."""
    for name in ("operator", "we", "guest"):
        answer = post(browse(name), "/", "/conditions/999/poke")
        assert (answer.status_code, "it has landed" in answer.text) == (404, True), name
    assert "data-stays" in answer.text, "the script does not look again in its place"
    assert recorded.recorded(pool, None, 10) == []


def test_a_list_in_a_frame_keeps_its_form(browse: Callable[[str], httpx.Client]) -> None:
    shown = browse("operator").get("/conditions?embedded=1").text
    assert 'href="/conditions/1?embedded=1"' in shown
    assert 'name="embedded" value="1"' in shown


def test_who_may_look_may_not_change(browse: Callable[[str], httpx.Client], pool: Pool) -> None:
    for name in ("guest", "our guest"):
        reader = browse(name)
        assert "<button>Cancel" not in reader.get("/instances/1").text
        assert post(reader, "/", "/instances/1/cancel").status_code == 403
        assert post(reader, "/", "/instances/1/hand-back").status_code == 403
        assert post(reader, "/", "/conditions/1/poke").status_code == 403
        assert post(reader, "/", "/quarantine/q1/release").status_code == 403
    ours = browse("we")
    assert post(ours, "/", "/instances/2/cancel").status_code == 404
    assert [state_of(pool, each) for each in (1, 2)] == [State.SENSING] * 2
    assert recorded.recorded(pool, None, 10) == []


def test_cancel_ends_the_wait_and_is_recorded(browse: Callable[[str], httpx.Client], pool: Pool) -> None:
    ours = browse("we")
    answer = post(ours, "/instances/1", "/instances/1/cancel")
    assert (answer.status_code, answer.headers["location"]) == (303, "/instances/1")
    assert state_of(pool, 1) == State.CANCELLED
    assert "cancelled by we" in ours.get("/instances/1").text
    [done] = recorded.recorded(pool, None, 10)
    assert (done["who"], done["what"], done["outcome"]) == ("we", "cancel", "it is cancelled")
    assert "instance 1: ours t0 r" in done["subject"]
    assert "it is cancelled" in browse("operator").get("/actions").text
    again = post(ours, "/instances/1", "/instances/1/cancel")
    assert again.status_code == 409
    assert "waits no more" in again.text


def test_only_a_task_of_airflows_is_handed_back(browse: Callable[[str], httpx.Client], pool: Pool) -> None:
    operator = browse("operator")
    refused = post(operator, "/instances/1", "/instances/1/hand-back")
    assert (refused.status_code, state_of(pool, 1)) == (409, State.SENSING)
    edit(pool, update(sensor_instance).where(sensor_instance.c.id == 1).values(external_id="an id"))
    assert post(operator, "/instances/1", "/instances/1/hand-back").status_code == 303
    assert pool.database.read(inspecting.instance, 1)["ending"] == "handed_back"  # type: ignore[index]
    page = operator.get(RUN).text
    assert '<span class="outcome handed_back">handed back</span>' in page
    assert "cancelled" not in page


def test_release_lets_a_condition_out(browse: Callable[[str], httpx.Client], pool: Pool) -> None:
    condition = identify(PATH, {"path": SCRIPT})
    values = {"digest": condition.digest, "op_classpath": PATH, "poke_context": condition.poke_context}
    edit(pool, insert(poke_quarantine).values(values | {"crashes": 3, "reason": SCRIPT, "since": 1}))
    operator = browse("operator")
    page = operator.get("/quarantine").text
    assert SCRIPT not in page
    assert "&lt;script&gt;alert(1)" in page
    condition_id = f"q{condition.digest.hex()[:12]}"
    assert condition_id in page
    assert post(operator, "/quarantine", f"/quarantine/{condition_id}/release").status_code == 303
    assert "Nothing is in quarantine" in operator.get("/quarantine").text
    assert post(operator, "/quarantine", f"/quarantine/{condition_id}/release").status_code == 404


def test_nothing_is_done_that_cannot_be_recorded(browse: Callable[[str], httpx.Client], pool: Pool) -> None:
    with pool.database.engine.begin() as connection:
        action.drop(connection)
    assert post(browse("operator"), "/instances/1", "/instances/1/cancel").status_code in (500, 503)
    assert state_of(pool, 1) == State.SENSING


def test_whatever_was_said_is_escaped(browse: Callable[[str], httpx.Client], pool: Pool) -> None:
    odd = f"{SCRIPT}\"'><img src=x onerror=alert(1)>"
    made = pool.register(PATH, {"path": f"/{odd}"}, dag_id=odd, task_id=odd, run_id=odd)
    edit(pool, update(sensor_instance).where(sensor_instance.c.id == made.id).values(reason=f"{odd}\u202e"))
    edit(pool, update(poke_group).where(poke_group.c.id == made.group_id).values(backend=odd, late_since=1))
    operator = browse("operator")
    found = ["/", "/conditions", f"/conditions/{made.group_id}", f"/instances/{made.id}"]
    found += [
        f"/conditions?class={odd}&backend={odd}&dag={odd}",
        f"/{odd}",
        f"/task?dag_id={odd}&run_id=r&task_id={odd}",
    ]
    for path in found:
        answer = operator.get(path)
        assert answer.status_code == (404 if path == f"/{odd}" else 200)
        text = answer.text
        for dangerous in (SCRIPT, "<img", "\u202e"):
            assert dangerous not in text, path


def test_a_list_is_filtered_sorted_and_paged(
    browse: Callable[[str], httpx.Client], pool: Pool, only_theirs: int
) -> None:
    pool.register_many({"sensor": PATH, "poke_context": {"path": f"/many/{number}"}} for number in range(60))
    edit(pool, update(poke_group).where(poke_group.c.id == only_theirs).values(late_since=1))
    operator = browse("operator")
    first = operator.get("/conditions").text
    assert "1 to 50 of 62" in first
    assert first.index("/conditions/1") < first.index(f"/conditions/{only_theirs}")  # two wait for the first
    assert "51 to 62 of 62" in operator.get("/conditions?first=50").text
    late = operator.get("/conditions?late=true&class=&backend=&dag=&outcome=&sort=lateness").text
    assert "1 to 1 of 1" in late
    assert "1 to 1 of 1" in operator.get("/conditions?dag=ours").text
    assert "No condition" in operator.get("/conditions?class=no.such.Class").text
    assert "No condition" in operator.get("/conditions?outcome=landed").text
    for wrong in ("sort=x", "first=-1", "first=99999999999999999999", "outcome=x", "late=x"):
        answer = operator.get(f"/conditions?{wrong}")
        assert answer.status_code == 422
        assert f"wrong value: {wrong.partition('=')[0]}" in answer.text


def test_a_condition_shows_earlier_landings_of_its_family(browse: Callable[[str], httpx.Client], pool: Pool) -> None:
    group = pool.database.read(inspecting.group, 1)
    values = {"family": group["hashcode"], "digest": group["digest"], "op_classpath": PATH, "ending": "landed"}  # type: ignore[index]
    edit(pool, insert(landing).values(values | {"waiting_since": 1, "ended_at": 61_001, "waiters": 7, "pokes": 8}))
    text = browse("operator").get("/conditions/1").text
    assert "1970-01-01 00:01:01" in text


@pytest.mark.parametrize("path", ["/static/{}", "/static/nothing", "/wake", "/nothing", "/conditions/"])
def test_all_answers_have_the_headers_and_none_names_the_host(pool: Pool, path: str) -> None:
    file = next(each.name for each in STATIC.iterdir())
    with served(application(pool, Named(), wake_token="x" * 20)) as found:
        for method in ("GET", "POST"):
            answer = httpx.request(method, f"{found}{path.format(file)}", headers={"host": "evil.example"})
            assert "evil.example" not in str(answer.headers)
            assert answer.status_code in {200, 401, 404, 405}
            assert HEADERS.keys() <= {name.title() for name in answer.headers}


@pytest.mark.parametrize("path", ["/instances/0", "/instances/99999999999999999999", "/conditions/-1", "/nothing"])
def test_what_is_not_there_is_said_in_a_line(browse: Callable[[str], httpx.Client], path: str) -> None:
    answer = browse("operator").get(path)
    assert answer.status_code == 404
    assert 'role="alert">' in answer.text


def test_a_database_that_is_away_is_a_line(browse: Callable[[str], httpx.Client], pool: Pool) -> None:
    operator = browse("operator")
    with pool.database.engine.begin() as connection:
        sensor_instance.drop(connection)
    assert operator.get("/instances/1").status_code == 503
    overview = operator.get("/")
    assert overview.status_code == 200
    assert 'class="problems"' in overview.text


class TestAlone:
    """`sensorpool web`: one token."""

    @pytest.fixture
    def client(self, pool: Pool) -> Iterator[httpx.Client]:
        with (
            served(alone.pages(pool, TokenAccess(TOKEN, may_act=False))) as found,
            httpx.Client(base_url=found) as made,
        ):
            yield made

    def test_the_token_is_a_password_a_bearer_and_a_cookie(self, client: httpx.Client) -> None:
        asked = client.get("/")
        assert asked.status_code == 401
        assert asked.headers["www-authenticate"].startswith("Basic ")
        assert client.get("/", auth=("ann", TOKEN)).status_code == 200
        assert client.get("/", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
        for wrong in ("", "x", TOKEN[:-1], TOKEN + "x", "ü" * 30):
            assert client.get("/", auth=("ann", wrong)).status_code == 401
            assert client.get("/", params={"token": wrong}, follow_redirects=True).status_code == 401
        for header in ("Basic", "Basic !", "Basic " + base64.b64encode(b"\xff").decode(), "Digest x", f"bearer{TOKEN}"):
            assert client.get("/", headers={"authorization": header}).status_code == 401
        logged_in = client.get("/conditions", params={"token": TOKEN})
        assert (logged_in.status_code, logged_in.headers["location"]) == (303, "/conditions")
        assert TOKEN not in str(logged_in.headers)
        assert client.get("/conditions").status_code == 200

    def test_a_login_leads_to_no_other_host(self, client: httpx.Client) -> None:
        for path in ("//evil.example/", "/\\evil.example", "/%2f/evil.example", "/%5cevil.example"):
            found = client.get(path, params={"token": TOKEN}).headers["location"]
            assert found.startswith("/")
            assert not found.startswith(("//", "/\\")), path

    def test_failed_logins_are_logged_without_their_tokens(
        self, client: httpx.Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        """With the address; who has no token yet has not failed."""
        client.get("/")
        assert "login" not in caplog.text
        assert client.get("/conditions", auth=("ann", "guess-1")).status_code == 401
        client.get("/conditions", params={"token": "guess-2"})
        lines = [each for each in caplog.records if "a login failed" in each.message]
        assert [line.fields for line in lines] == [{"client": "127.0.0.1", "path": "/conditions"}] * 2
        assert "guess" not in str([each.__dict__ for each in caplog.records])

    def test_it_is_read_only_unless_actions_are_allowed(self, client: httpx.Client, pool: Pool) -> None:
        client.auth = ("ann", TOKEN)
        assert "<button>Cancel" not in client.get("/instances/1").text
        assert post(client, "/", "/instances/1/cancel").status_code == 403
        assert state_of(pool, 1) == State.SENSING
        acting = alone.pages(pool, TokenAccess(TOKEN, may_act=True))
        with served(acting) as found, httpx.Client(base_url=found, auth=("ann", TOKEN)) as other:
            assert post(other, "/", "/instances/1/cancel").status_code == 303
        assert recorded.recorded(pool, None, 1)[0]["who"] == "ann"


def test_a_pool_in_one_process_takes_no_orders(browse: Callable[[str], httpx.Client]) -> None:
    refused = post(browse("operator"), "/conditions/1", "/conditions/1/poke")
    assert refused.status_code == 409
    assert "REDIS_URL" in refused.text
