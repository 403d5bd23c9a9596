"""The page on Airflow lists what the code has: reasons, reviewed providers, names of templates, defaults."""

import re

import pytest

pytest.importorskip("airflow")

from airflow.ti_deps.dependencies_states import EXECUTION_STATES
from airflow.utils.state import TaskInstanceState

from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import REASONS_TO_BEGIN
from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.start import templates
from sensorpool.config.settings import Settings
from tests.support.pages import ROOT

PAGE = (ROOT / "docs" / "airflow.md").read_text()
WITHOUT_WORKER = PAGE.partition("\n## Begin without a worker\n")[2].partition("\n## ")[0]


def spans(text: str) -> set[str]:
    """Return the code spans of a text."""
    return set(re.findall(r"`([^`]+)`", text))


def test_each_reason_to_begin_on_a_worker_has_its_row() -> None:
    rows = WITHOUT_WORKER.partition("| `reason` | |\n| --- | --- |\n")[2].partition("\n\n")[0].splitlines()
    assert set().union(*[spans(row.split(" | ")[0]) for row in rows]) == REASONS_TO_BEGIN


def test_the_reviewed_providers_are_named() -> None:
    named = re.search(r"sensors have been reviewed \(([^)]*)\)", WITHOUT_WORKER)
    assert named
    assert tuple(re.split(r",\s+", named[1])) == known_sensors._REVIEWED


def test_the_names_that_templates_may_have_are_listed() -> None:
    text = WITHOUT_WORKER.partition("its templates name only ")[2].partition("; they take in no other")[0]
    parts = {part for name, some in templates._PARTS.items() if name != "var" for part in some}
    admitted = templates._VALUES | templates._PARTS.keys() - {"task_instance"} | parts
    assert {word for span in spans(text) for word in span.split(".")} == admitted


def test_a_deferred_task_takes_no_room() -> None:
    """Airflow counts these states for `max_active_tasks`, and for the slots of a pool without `include_deferred`."""
    assert TaskInstanceState.DEFERRED not in EXECUTION_STATES


@pytest.mark.parametrize("page", ["airflow", "operations"])
def test_a_default_that_a_page_tells_is_that_of_the_setting(page: str) -> None:
    fields = {**Settings.model_fields, **AirflowSettings.model_fields}
    text = (ROOT / "docs" / f"{page}.md").read_text()
    for name, told in re.findall(r"`(?:SENSORPOOL_)?(\w+)` \((\d+)(?: s)?\)", text):
        if (field := fields.get(name.lower())) is not None:
            assert field.default == float(told), name
