"""Prometheus's own evaluation of rules and queries, by `promtool test rules`, on series that a test has scraped.

A series is a list of phases, of so many steps each: in a phase its value stays as it was scraped, or it is not there.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.support.pages import ROOT
from tests.support.scrapes import Sample

ALERTS = ROOT / "monitoring" / "alerts.yml"
STEP = 30  # seconds
_MISSING = "no promtool: apt-get install prometheus"

Series = dict[str, list[float | None]]
"""The value of each series in each phase; None: it is not there."""


class Phase(NamedTuple):
    """What was scraped of each worker, by its instance, and for how many steps it stays so."""

    scraped: Mapping[str, Sequence[Sample]]
    steps: int


def promtool() -> str:
    """Return the path of promtool; without it, skip the test, or fail it where CI has installed it."""
    found = shutil.which("promtool")
    if found is None:
        # only root can install a Debian package, so only root's CI run is to blame for its absence
        (pytest.fail if os.environ.get("CI") == "true" and os.geteuid() == 0 else pytest.skip)(_MISSING)
    return found


def check(folder: Path, series: Mapping[str, str], expectations: Sequence[Mapping[str, Any]]) -> None:
    """Have promtool evaluate queries on series, beside the alerts.

    :param series: promtool's values by the name of the series.
    :param expectations: of ``promql_expr_test``.
    """
    test = {
        "rule_files": [str(ALERTS)],
        "evaluation_interval": f"{STEP}s",
        "tests": [
            {
                "interval": f"{STEP}s",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": list(expectations),
            }
        ],
    }
    file = folder / "promtool.yml"
    file.write_text(yaml.safe_dump(test, width=1000))
    done = subprocess.run([promtool(), "test", "rules", str(file)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def series_of(phases: Sequence[Phase]) -> dict[str, str]:
    """Return the series of phases, with `up` as Prometheus notes it, in promtool's notation."""
    names: dict[str, list[float | None]] = {}
    for place, phase in enumerate(phases):
        for instance, samples in phase.scraped.items():
            of_target = {"instance": instance, "job": "sensorpool"}
            up = Sample("up", {}, float(bool(samples)))
            for sample in (up, *samples):
                labels = ",".join(f"{k}={json.dumps(v)}" for k, v in sorted((sample.labels | of_target).items()))
                values = names.setdefault(f"{sample.name}{{{labels}}}", [None] * len(phases))
                values[place] = sample.value
    return {name: _spelt(values, [phase.steps for phase in phases]) for name, values in names.items()}


def firing(alerts: Mapping[str, int], *, at: int, among: str = ".+") -> dict[str, Any]:
    """Return the expectation that these alerts fire, each so many times, and no others.

    :param at: the step.
    :param among: a pattern of the alerts that count.
    """
    return {
        "expr": f'count by (alertname) (ALERTS{{alertstate="firing",alertname=~"{among}"}})',
        "eval_time": f"{at * STEP}s",
        "exp_samples": [
            {"labels": f'{{alertname="{name}"}}', "value": count} for name, count in sorted(alerts.items())
        ],
    }


def answering(query: str, *, at: int) -> dict[str, Any]:
    """Return the expectation that a query has an answer.

    :param at: the step.
    """
    return {
        "expr": f"count({query}) > bool 0",
        "eval_time": f"{at * STEP}s",
        "exp_samples": [{"labels": "{}", "value": 1}],
    }


def _spelt(values: Sequence[float | None], steps: Sequence[int]) -> str:
    parts, was_there = [], False
    for value, count in zip(values, steps, strict=True):
        if value is None:
            parts.append(f"stale _x{count - 1}" if was_there else f"_x{count}")
        else:
            parts.append(f"{value:f}+0x{count - 1}")
        was_there = value is not None
    return " ".join(parts)
