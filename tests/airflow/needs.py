"""Tests of what only some versions of Airflow have: they are left out by the feature table, and the run says so."""

import pytest

from sensorpool.airflow.compat import features
from sensorpool.airflow.compat.features import Feature, has, version

FILES = {  # that import what they need
    "test_moved_trigger.py": features.TRIGGER_ON_KILL,
    "test_resumable_job.py": features.RESUMABLE_JOBS,
    "test_start_parse.py": features.START_FROM_TRIGGER,
    "test_start_trigger.py": features.START_FROM_TRIGGER,
}


def needs(feature: Feature) -> pytest.MarkDecorator:
    """Leave a test out on a version of Airflow that has not what it is about."""
    return pytest.mark.skipif(not has(feature), reason=reason(feature))


def reason(feature: Feature) -> str:
    """Return why tests of a feature are left out."""
    return f"Airflow {'.'.join(map(str, version()))} has not: {feature.what}"


def left_out() -> dict[str, Feature]:
    """Return the files that are left out on this version, with what they need."""
    return {name: feature for name, feature in FILES.items() if not has(feature)}
