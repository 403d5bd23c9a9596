"""The pool's pages in the UI of a whole Airflow: the tab of a task that waits, in a browser, and an action on it."""

import re
from pathlib import Path

import httpx

from harness.servers.server import LOOPBACK
from tests.e2e.cluster import Cluster
from tests.e2e.fleet import Fleet
from tests.support.web import dom_of, needs_chromium, post


def test_the_tab_of_a_task_says_why_it_waits_and_hands_it_back(cluster: Cluster, fleet: Fleet, tmp_path: Path) -> None:
    needs_chromium()
    fleet.wait(count=2, distinct=1)
    address = f"http://{LOOPBACK}:{cluster.port}"
    tab = f"/dags/fleet/runs/{fleet.run_id}/tasks/wait/mapped/0/plugin/sensor-pool-of-task"
    dom = dom_of(f"{address}{tab}", tmp_path / "profile")
    frame = re.search(r'<iframe[^>]* src="(/sensorpool/task\?[^"]*)"', dom)
    assert frame, dom[-2000:]
    page = frame[1].replace("&amp;", "&")
    log = (cluster.folder / "api-server.log").read_text()
    assert re.search(r"path=/sensorpool/task .*status_code=200", log), "the browser has no page in its frame"

    with httpx.Client(base_url=address, timeout=30) as client:
        client.cookies.set("_token", client.get("/auth/token").json()["access_token"])
        said = client.get(page).text
        assert "found that it does not hold yet" in said
        assert "1, by the same pokes" in said
        # Chromium has just taken both cores: the triggerer is alive again once it notes that it is.
        cluster.wait_for("the triggerer's room", lambda: _room(client) == "4,998 of 5,000")
        instance = re.search(r'action="(/sensorpool/instances/\d+/hand-back)', said)
        assert instance
        assert post(client, page, instance[1]).status_code == httpx.codes.SEE_OTHER
    cluster.wait_for("one to run natively", lambda: fleet.states() == {"running": 1, "deferred": 1})
    fleet.land()
    cluster.wait_for("success of all", fleet.is_over)
    assert fleet.states() == {"success": 2}


def _room(client: httpx.Client) -> str:
    """Return what the overview says of the room in the triggerers; nothing, if it says nothing of it."""
    overview = client.get("/sensorpool/").raise_for_status().text
    found = re.search(r"room in the triggerers</dt><dd>([^<]*)", overview)
    return found[1] if found else ""
