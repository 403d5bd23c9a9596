"""Each query of the Grafana dashboard has an answer in the metrics of a running pool, and names only what is there."""

import json
import re
from collections.abc import Callable
from pathlib import Path

from harness.scripted import land, pokes
from harness.service import Service
from harness.until import until
from tests.support.pages import ROOT
from tests.support.promtool import STEP, Phase, answering, check, series_of
from tests.support.scrapes import Sample, free_port, scrape, total

DASHBOARD = json.loads((ROOT / "monitoring" / "grafana.json").read_text())
SENSOR = "harness.scripted.ScriptedSensor"
_OF_PROMETHEUS = {"job", "instance"}  # labels that it adds to what it scrapes
_STEPS = 20


def queries() -> list[tuple[str, str]]:
    """Return title and query of each target of each panel, with Grafana's variables filled in."""
    found = []
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            expr = target["expr"].replace("$__rate_interval", f"{4 * STEP}s").replace("$job", ".+")
            assert "$" not in expr, panel["title"]
            found.append((panel["title"], expr))
    return found


def labels_in(query: str) -> set[str]:
    """Return the labels that a query names."""
    matched = set(re.findall(r"[{,]\s*(\w+)\s*(?:=~|!~|!=|=)", query))
    grouped = [each.strip() for names in re.findall(r"\bby \(([^)]*)\)", query) for each in names.split(",")]
    return matched.union(grouped)


def test_each_query_answers(make_service: Callable[..., Service], tmp_path: Path) -> None:
    scraped = _scrapes_of_a_pool(make_service, tmp_path)
    told = [sample for samples in scraped for sample in samples]
    labels: dict[str, set[str]] = {}
    for sample in told:
        labels.setdefault(sample.name, set()).update(sample.labels)
    asked = queries()
    assert len(asked) > 40
    for title, query in asked:
        names = set(re.findall(r"\bsensorpool_\w+", query))
        assert names <= labels.keys(), title
        known = set().union(*(labels[name] for name in names)) | _OF_PROMETHEUS
        assert labels_in(query) <= known, title
    used = {name for _, query in asked for name in re.findall(r"\bsensorpool_\w+", query)}
    assert used >= {name for name in labels if not name.startswith("sensorpool_jobs_")} - _NOT_SHOWN - _of_histograms(
        labels
    )
    phases = [Phase({"worker-1:9109": samples}, _STEPS) for samples in scraped]
    check(tmp_path, series_of(phases), [answering(query, at=_STEPS + 1) for _, query in asked])


_NOT_SHOWN = {
    *("sensorpool_callbacks", "sensorpool_failing_chores"),
}


def _of_histograms(labels: dict[str, set[str]]) -> set[str]:
    return {name for name in labels if name.endswith(("_sum", "_count"))}


def _scrapes_of_a_pool(make_service: Callable[..., Service], folder: Path) -> list[list[Sample]]:
    """Return two scrapes of a pool's worker: with pokes of all kinds, and a while later."""
    port = free_port()
    service = make_service(metrics_port=port)
    script = {"folder": str(folder)}
    ids = [service.pool.register(SENSOR, script | {"name": name}).id for name in ("a", "b", "b", "c")]
    service.pool.register(SENSOR, script | {"name": "bad", "script": "raise"})
    service.start()
    until("pokes", lambda: pokes(folder).keys() >= {"a", "b", "c"})
    land(folder, "a")
    service.pool.wait(ids[:1], 30)
    first = until(
        "all figures",
        lambda: (
            total(found := scrape(port), "sensorpool_settled_total", ending="landed")
            and total(found, "sensorpool_beat_seconds")
            and total(found, "sensorpool_sensing")
            and found
        ),
    )
    more = total(first, "sensorpool_pokes_total") + 3
    second = until("more pokes", lambda: total(found := scrape(port), "sensorpool_pokes_total") > more and found)
    return [first, second]
