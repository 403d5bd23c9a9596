"""The page on Airflow lists what the code has: reasons, reviewed providers, names of templates, defaults."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

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
    text = " ".join(WITHOUT_WORKER.split()).partition("Its templates name only ")[2].partition(". They take in no")[0]
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


TROUBLES = PAGE.partition("\n## Troubles\n")[2].partition("\n## ")[0]
NOT_NATIVE = {"airflow", "class", "context", "limit", "listeners", "mapped", "pool", "rendering", "template", "xcom"}
NOT_NATIVE |= {"arguments", "unproved"}  # a sensor that begins on a worker for these may be pooled


def kinds(path: Path) -> Iterator[str]:
    """Yield the kinds of the reasons for which a module has a sensor run natively."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_KIND":
            yield ast.literal_eval(node.value)
        elif isinstance(node, ast.Call):
            name, given = ast.unparse(node.func), node.args
            if name == "NotPoolable" and len(given) > 1 and isinstance(given[1], ast.Constant):
                yield given[1].value
            elif name == "self._note" and path.name == "first_poke.py":
                yield ast.literal_eval(given[0])


def test_each_reason_to_run_natively_has_its_row() -> None:
    rows = TROUBLES.partition("| `reason` of `sensorpool.native` | |\n| --- | --- |\n")[2].splitlines()
    found = {kind for path in (ROOT / "sensorpool" / "airflow").rglob("*.py") for kind in kinds(path)}
    assert set().union(*[spans(row.split(" | ")[0]) for row in rows]) == (found - NOT_NATIVE) | {
        "not_poolable",
        "registration_failed",
    }


def test_the_lines_of_troubles_are_those_of_the_code() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "sensorpool" / "airflow").rglob("*.py"))
    lines = {span for span in spans(TROUBLES) if span.startswith(("sensorpool: ", "sensorpool is ", "the task"))}
    assert len(lines) > 10
    for line in lines:
        assert line.removesuffix("…").strip().removesuffix(":") in code, line
