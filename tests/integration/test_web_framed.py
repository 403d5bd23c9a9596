"""A page in a frame, as Airflow's UI shows it: in the mode of the page around it, and with a question of its own.

The frame is as closed as Airflow's is (`sandbox`): the browser shows none of its own dialogs in it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.responses import HTMLResponse

from sensorpool import Pool
from sensorpool.model.states import State
from sensorpool.store import inspecting
from sensorpool.web.access import Reader
from sensorpool.web.application import application
from tests.support.web import dom_of, needs_chromium, served

AROUND = """<!doctype html><html class="dark"><body>
<iframe sandbox="allow-scripts allow-same-origin allow-forms" src="/pages/task?dag_id=d&run_id=r&task_id=t&embedded=1">
</iframe><script>
const frame = document.querySelector("iframe"), answer = location.search.slice(1);
frame.addEventListener("load", () => {
  const page = frame.contentDocument, button = page.querySelector("form[action*=cancel] button");
  document.body.dataset.mode = page.documentElement.dataset.mode;
  document.body.dataset.header = page.querySelector("header") ? "yes" : "no";
  if (!button) return;
  button.click();
  document.body.dataset.asked = page.getElementById("question").textContent;
  page.querySelector(`#ask button[value=${answer}]`).click();
});
</script></body></html>"""


class Operators:
    """Takes everybody for an operator."""

    def reader(self) -> Reader:
        return Reader("operator", changed=None, operates=True, watches=True, oversees=True)


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    pool = make_pool()
    pool.register("sensorpool.sensors.PathSensor", {"path": "/x"}, dag_id="d", task_id="t", run_id="r")
    return pool


@pytest.fixture
def address(pool: Pool) -> Iterator[str]:
    app = FastAPI()
    app.mount("/pages", application(pool, Operators()))
    app.get("/around")(lambda: HTMLResponse(AROUND))
    with served(app) as found:
        yield found


@pytest.mark.parametrize(("answer", "state"), [("no", State.SENSING), ("yes", State.CANCELLED)])
def test_an_action_asks_first_and_takes_the_answer(
    pool: Pool, address: str, tmp_path: Path, answer: str, state: State
) -> None:
    needs_chromium()
    found = dom_of(f"{address}/around?{answer}", tmp_path / "profile")
    assert 'data-mode="dark"' in found
    assert 'data-asked="Nothing pokes for it any more, and it ends. Cancel it?"' in found
    assert 'data-header="no"' in found
    assert pool.database.read(inspecting.instance, 1)["state"] == state  # type: ignore[index]
