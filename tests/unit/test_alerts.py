"""The Prometheus alerts: each fires on what it is for, and on nothing else. Real pools are in `tests/faults`."""

import re
from pathlib import Path

import pytest
import yaml

from tests.support.pages import ROOT
from tests.support.promtool import ALERTS, check, firing

WELL = {  # at the edge of each threshold
    'up{job="sensorpool",instance="a"}': 1,
    'up{job="sensorpool",instance="b"}': 1,
    'sensorpool_server_up{job="sensorpool",instance="a",server="database"}': 1,
    'sensorpool_server_up{job="sensorpool",instance="b",server="database"}': 1,
    'sensorpool_server_up{job="sensorpool",instance="a",server="Redis"}': 1,
    'sensorpool_server_up{job="sensorpool",instance="b",server="Redis"}': 1,
    'sensorpool_sensing{job="sensorpool",instance="a"}': 0,
    'sensorpool_tick_seconds{job="sensorpool",instance="a"}': 5,
    'sensorpool_beat_seconds{job="sensorpool",instance="a"}': 35,
    'sensorpool_ranges_late{job="sensorpool",instance="a"}': 0,
    'sensorpool_backends_away{job="sensorpool",instance="a"}': 0,
    'sensorpool_overdue{job="sensorpool",instance="a"}': 0,
    'sensorpool_overdue_apart{job="sensorpool",instance="a"}': 0,
    'sensorpool_overrunning{job="sensorpool",instance="a"}': 0,
    'sensorpool_past_deadline{job="sensorpool",instance="a"}': 0,
    'sensorpool_unsettled_total{job="sensorpool",instance="a"}': 7,
    'sensorpool_outbox_seconds{job="sensorpool",instance="a"}': 300,
    'sensorpool_callbacks_seconds{job="sensorpool",instance="a"}': 300,
    'sensorpool_quarantined{job="sensorpool",instance="a"}': 0,
    'sensorpool_child_deaths{job="sensorpool",instance="a",by="itself"}': 2,
    'sensorpool_child_deaths{job="sensorpool",instance="a",by="outside"}': 9,
    'sensorpool_failing_chores{job="sensorpool",instance="a"}': 0,
    'sensorpool_not_here{job="sensorpool",instance="b",op_classpath="pkg.Sensor"}': 0,
    'sensorpool_jobs_refused_total{job="sensorpool",instance="a"}': 7,
}
STEPS = 60

CASES = [
    ("SensorpoolNoWorker", 'up{job="sensorpool",instance="b"}', "0"),
    ("SensorpoolWorkerDown", 'up{job="sensorpool",instance="b"}', "0"),
    ("SensorpoolServerAway", 'sensorpool_server_up{job="sensorpool",instance="b",server="Redis"}', "0"),
    ("SensorpoolBeatDead", 'sensorpool_beat_seconds{job="sensorpool",instance="a"}', "36"),
    ("SensorpoolRangesLate", 'sensorpool_ranges_late{job="sensorpool",instance="a"}', "1"),
    ("SensorpoolBackendAway", 'sensorpool_backends_away{job="sensorpool",instance="a"}', "1"),
    ("SensorpoolCannotKeepUp", 'sensorpool_overdue{job="sensorpool",instance="a"}', "1"),
    ("SensorpoolPokesHang", 'sensorpool_overdue_apart{job="sensorpool",instance="a"}', "1"),
    ("SensorpoolPokesOverrun", 'sensorpool_overrunning{job="sensorpool",instance="a"}', "1"),
    ("SensorpoolPastDeadline", 'sensorpool_past_deadline{job="sensorpool",instance="a"}', "1"),
    ("SensorpoolResultsNotWritten", 'sensorpool_unsettled_total{job="sensorpool",instance="a"}', "7+1"),
    ("SensorpoolOutboxStuck", 'sensorpool_outbox_seconds{job="sensorpool",instance="a"}', "301"),
    ("SensorpoolCallbacksStuck", 'sensorpool_callbacks_seconds{job="sensorpool",instance="a"}', "301"),
    ("SensorpoolQuarantine", 'sensorpool_quarantined{job="sensorpool",instance="a"}', "1"),
    ("SensorpoolChildrenDie", 'sensorpool_child_deaths{job="sensorpool",instance="a",by="itself"}', "3"),
    ("SensorpoolChildrenDie", 'sensorpool_child_deaths{job="sensorpool",instance="a",by="outside"}', "10"),
    ("SensorpoolRescueFails", 'sensorpool_failing_chores{job="sensorpool",instance="a"}', "1"),
    ("SensorpoolClassNotHere", 'sensorpool_not_here{job="sensorpool",instance="b",op_classpath="pkg.Sensor"}', "1"),
    ("SensorpoolNotObserved", 'sensorpool_sensing{job="sensorpool",instance="a"}', "_"),
    ("SensorpoolJobsOfOthers", 'sensorpool_jobs_refused_total{job="sensorpool",instance="a"}', "7+1"),
]


def series(**changed: str) -> dict[str, str]:
    return {name: f"{value}x{STEPS}" for name, value in (WELL | changed).items()}


def test_a_pool_that_is_well_alerts_nobody(tmp_path: Path) -> None:
    check(tmp_path, series(), [firing({}, at=step) for step in (0, STEPS // 2, STEPS)])


@pytest.mark.parametrize(("alert", "name", "value"), CASES)
def test_each_alert_fires(alert: str, name: str, value: str, tmp_path: Path) -> None:
    assert name in WELL
    alerts, changed = {alert: 1}, {name: value}
    if alert == "SensorpoolNoWorker":
        alerts["SensorpoolWorkerDown"] = 2
        changed |= {'up{job="sensorpool",instance="a"}': value}
    check(tmp_path, series(**changed), [firing(alerts, at=STEPS)])


def test_each_alert_has_a_case_and_what_an_operator_needs() -> None:
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    assert {rule["alert"] for rule in rules} == {alert for alert, *_ in CASES}
    for rule in rules:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"].keys() == {"summary", "description"}


def test_each_alert_is_seen_in_its_fault() -> None:
    seen = (ROOT / "tests" / "faults" / "test_alerts.py").read_text()
    assert {alert for alert, *_ in CASES if f'"{alert}"' not in seen} == set()


def test_alerts_and_dashboard_name_metrics_that_operations_lists() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    for path in (ALERTS, ROOT / "monitoring" / "grafana.json"):
        names = set(re.findall(r"\bsensorpool_\w+", path.read_text()))
        assert len(names) > 10
        missing = {each for each in names if not re.search(rf"`{re.sub('_(bucket|sum|count)$', '', each)}[`{{]", page)}
        assert missing == set()
