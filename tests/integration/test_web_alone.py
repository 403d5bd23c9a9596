"""`sensorpool web` beside a running pool: as a process of its own, with an order to the pool, and in a browser."""

import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from harness.scripted import land
from harness.service import Service
from harness.until import until
from sensorpool import Pool
from sensorpool.cli.main import main
from sensorpool.model.states import State
from sensorpool.web.alone import TokenAccess, pages
from tests.integration.test_main_run import SCRIPTED
from tests.support.web import dom_of, needs_chromium, post, served

TOKEN = "a-token-of-this-test-only"
HOUR = 3_600.0
SCRIPT = "<script>document.title = 'taken'</script>"


@pytest.fixture
def service(make_service: Callable[..., Service]) -> Service:
    return make_service(web_token=TOKEN)


@pytest.fixture
def address(service: Service) -> str:
    """The address of the pages' process."""
    service.process("sensorpool", "web", "--port=0", "--allow-actions")
    found = until("the pages", lambda: re.search(r"http://127\.0\.0\.1:\d+/", service.logs()))
    return str(found[0])


def test_a_poke_at_once_does_not_wait_for_the_interval(service: Service, address: str, tmp_path: Path) -> None:
    instance = service.pool.register(SCRIPTED, {"folder": str(tmp_path), "name": "x"}, poke_interval=HOUR)
    service.start()
    with httpx.Client(base_url=address, auth=("ann", TOKEN)) as client:
        where = f"/conditions/{instance.group_id}"
        until("its first poke", lambda: "not landed" in client.get(where).text)
        land(tmp_path, "x")
        assert post(client, where, f"{where}/poke").status_code == 303
        assert service.pool.wait(instance, 60) == {instance.id: State.SUCCESS}  # long before the hour
        assert client.get(where).status_code == 404  # nothing waits for it any more
        assert "its condition landed" in client.get(f"/instances/{instance.id}").text
        assert re.search(r"poke now.*it is poked", client.get("/actions").text)
    assert TOKEN not in service.logs()


def test_a_browser_runs_our_script_and_no_other(service: Service, address: str, tmp_path: Path) -> None:
    needs_chromium()
    instance = service.pool.register(
        SCRIPTED, {"folder": str(tmp_path), "name": SCRIPT}, dag_id=SCRIPT, task_id="t", run_id="r", poke_interval=HOUR
    )
    service.start()
    where = f"{address.replace('//', f'//ann:{TOKEN}@')}"
    until("its first poke", lambda: service.json("show", str(instance.id))["last_outcome"] == "not_landed")
    for number, path in enumerate(("", "conditions", f"conditions/{instance.group_id}", f"instances/{instance.id}")):
        found = dom_of(f"{where}{path}", tmp_path / f"profile{number}")
        assert "<title>taken</title>" not in found, path
        assert 'data-fresh="1"' in found, path  # the script has looked again
    assert 'class="poke not_landed"' in found


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        (["--host", "0.0.0.0"], {}, "set SENSORPOOL_WEB_TOKEN"),  # nothing is listened on
        ([], {"SENSORPOOL_WEB_TOKEN": "short-secret"}, "SENSORPOOL_WEB_TOKEN must have 16 characters at least"),
        (["--host", "no.such.host.invalid"], {"SENSORPOOL_WEB_TOKEN": TOKEN}, "name another --host"),
        (["--port", "70000"], {}, "70000"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    arguments: list[str], environment: dict[str, str], said: str, tmp_path: Path
) -> None:
    here = {"SENSORPOOL_DATABASE_URL": f"sqlite:///{tmp_path / 'pool.db'}"}
    done = CliRunner().invoke(main, ["web", *arguments], env=here | environment)
    assert done.exit_code == 2
    assert said in done.output
    assert "short-secret" not in done.output


def test_an_address_with_the_token_leads_to_the_page_that_it_names(make_pool: Callable[..., Pool]) -> None:
    with (
        served(pages(make_pool(web_token=TOKEN), TokenAccess(TOKEN, may_act=False))) as address,
        httpx.Client() as client,
    ):
        found = client.get(f"{address}/conditions?late=true&token={TOKEN}&class=a%26b")
        assert (found.status_code, found.headers["location"]) == (303, "/conditions?late=true&class=a%26b")
        found = client.get(f"{address}//evil.example/?token={TOKEN}")
        assert found.headers["location"].startswith("/evil.example")


def test_the_token_is_not_shown(service: Service) -> None:
    shown = service.cli("config").stdout
    assert "SENSORPOOL_WEB_TOKEN" in shown
    assert TOKEN not in shown
