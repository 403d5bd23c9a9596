"""The doctor says whether the pool can have the DAG bundles here that it loads DAG files of."""

import json
from pathlib import Path

import pytest

pytest.importorskip("airflow.providers.standard")

from sensorpool.airflow.pool.checks import check_bundles
from sensorpool.airflow.proof.arguments import dag_file

LOCAL = "airflow.dag_processing.bundles.local.LocalDagBundle"


def test_each_bundle_is_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "dags").mkdir()
    bundles = [
        {"name": "ours", "classpath": LOCAL, "kwargs": {"path": str(tmp_path / "dags")}},
        {"name": "unmounted", "classpath": LOCAL, "kwargs": {"path": str(tmp_path / "away")}},
        {"name": "theirs", "classpath": LOCAL, "kwargs": {"branch": "main"}},
    ]
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps(bundles))
    assert list(check_bundles(frozenset())) == [], "the pool loads no DAG files"
    ours, unmounted, theirs = check_bundles(frozenset({dag_file.SENSOR}))
    assert (ours.level, ours.said) == ("ok", f"ours is here: {tmp_path / 'dags'}")
    assert unmounted.level == theirs.level == "warning"
    assert "to the same folder as on the workers" in unmounted.said
    assert "unexpected keyword argument 'branch'" in theirs.said
    assert "configure it as on the workers" in theirs.said


def test_a_class_that_is_not_installed_and_an_option_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = {"name": "gone", "classpath": "acme_bundles.Gone", "kwargs": {}}
    for configured, said in ((json.dumps([gone]), "No module named 'acme_bundles'"), ("[{", "cannot be read here")):
        monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", configured)
        [finding] = check_bundles(frozenset({dag_file.SENSOR}))
        assert (finding.level, said in finding.said) == ("warning", True), finding
