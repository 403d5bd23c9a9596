"""`airflow.providers.*` stands for what docs/sensors.md proves poolable; other sensors need their exact names."""

import importlib
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.sensors.bash import BashSensor
from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.providers.standard.sensors.python import PythonSensor
from airflow.providers.standard.sensors.weekday import DayOfWeekSensor

from sensorpool import Settings
from sensorpool.admin import allowed_classes
from sensorpool.admin.allowed_classes import doubt_about, installed
from sensorpool.airflow import catalog
from sensorpool.airflow.configuration import AIRFLOW_SENSORS, AirflowSettings
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.provider import get_provider_info
from sensorpool.airflow.task import poolable
from sensorpool.config.allowlist import Allowlist, ClassKind, classes_of
from sensorpool.config.defaults import BUILT_IN_SENSORS
from sensorpool.errors import ClassUnavailable
from sensorpool.poke.classes import Classes
from tests.airflow.running import Flag, context_of

ALL = "airflow.providers.*"
CONSUME = [
    "BashSensor",
    "PythonSensor",
    "DecoratedSensorOperator",
    "SqsSensor",
    "PubSubPullSensor",
    "RedisPubSubSensor",
]


def admitted(sensor: Any, *entries: str) -> str:
    return poolable.admit(sensor, context_of(sensor), Settings.load(sensors_enabled=entries), AirflowSettings())


def test_the_pattern_admits_the_proved_sensors_alone() -> None:
    listed = Allowlist((ALL,)).named()
    assert listed == catalog.proved().poolable
    assert len(listed) > 80
    assert "airflow.providers.amazon.aws.sensors.athena.AthenaSensor" in listed
    for name in CONSUME:
        assert not [path for path in listed if path.endswith(f".{name}")]
        assert [path for path in catalog.proved().native if path.endswith(f".{name}")]
    assert admitted(DayOfWeekSensor(task_id="t", week_day="Monday"), ALL)
    assert admitted(FileSensor(task_id="t", filepath="/x"), "airflow.providers.standard.*")
    assert admitted(BashSensor(task_id="t", bash_command="true"), ALL, f"{BashSensor.__module__}.BashSensor")


FROM_DAG_FILE = "sensorpool.airflow.pool.dag_files.DagFileSensor, which code of DAG files needs"
NOT_LISTED = {
    "by a pattern": (BashSensor, f"{BashSensor.__module__}.BashSensor by its exact name"),
    "by nothing": (Flag, "tests.airflow.running.Flag"),
    "a function": (PythonSensor, FROM_DAG_FILE),
    "of a DAG file": (type("Ours", (Flag,), {"__module__": "unusual_prefix_0a1b_dag"}), FROM_DAG_FILE),
}


@pytest.mark.parametrize("kind", NOT_LISTED)
def test_the_reason_is_one_short_line(kind: str) -> None:
    cls, missing = NOT_LISTED[kind]
    arguments = {"by a pattern": {"bash_command": "true"}, "a function": {"python_callable": print}}
    with pytest.raises(NotPoolable) as refused:
        admitted(cls(task_id="t", **arguments.get(kind, {"flag": "x"})), ALL)
    assert str(refused.value) == f"[sensorpool] sensors_enabled does not list {missing}"


@pytest.mark.parametrize("pattern", ["airflow.providers.amazon.*", "airflow.providers.amazon.aws.sensors.s3.*"])
def test_a_pattern_of_a_provider_or_module_admits_a_part(pattern: str) -> None:
    part = classes_of(pattern)
    assert part == {path for path in catalog.proved().poolable if path.startswith(pattern[:-1])}
    assert part


@pytest.mark.parametrize("pattern", ["airflow.providers.acme.*", "airflow.sensors.*", "airflow.sdk.*"])
def test_a_provider_that_was_not_looked_at_stands_for_nothing(pattern: str) -> None:
    assert doubt_about(pattern) == (
        f"{pattern} stands for no class: docs/sensors.md lists none below it as poolable; "
        "name its classes exactly, or mend the pattern"
    )


@pytest.mark.parametrize("path", sorted(catalog.proved().poolable))
def test_each_class_of_the_table_is_there_by_that_name(path: str) -> None:
    module, _, name = path.rpartition(".")
    cls = getattr(importlib.import_module(module), name)
    assert f"{cls.__module__}.{cls.__qualname__}" == path


def test_the_table_names_the_versions_that_are_installed_here() -> None:
    for package, proved in catalog.proved().versions.items():
        assert version(proved.distribution) == proved.version, package
    found = installed(ALL)
    assert {path for _, _, paths in found.values() for path in paths} == catalog.proved().poolable
    assert all(here == proved for here, proved, _ in found.values())


def test_the_default_is_short_and_reads_no_table(tmp_path: Path) -> None:
    """Each process of Airflow reads the provider's metadata."""
    default = get_provider_info()["config"]["sensorpool"]["options"]["sensors_enabled"]["default"]
    assert default.split(",") == [*BUILT_IN_SENSORS, *AIRFLOW_SENSORS]
    assert len(default) < 400
    code = """
import json, sys
from pathlib import Path
opened = []
sys.addaudithook(lambda event, args: event == "open" and opened.append(str(args[0])))
from sensorpool.airflow.provider import get_provider_info
get_provider_info()
from sensorpool.airflow import policy
from sensorpool.config.settings import Settings
Settings.load()
print(json.dumps([path for path in opened if path.endswith("proved_sensors.json")]))
"""
    environment = {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__SENSORPOOL__ENABLED": "True", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_by_default_every_proved_sensor_is_admitted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("SENSORPOOL_ENABLED", "1")
    listed = Allowlist(Settings.load().sensors_enabled).named()
    operators = {entry for entry in AIRFLOW_SENSORS if entry != ALL}
    assert listed == catalog.proved().poolable | operators | set(BUILT_IN_SENSORS)


def test_an_option_that_is_set_is_all_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__SENSORPOOL__ENABLED", "1")
    monkeypatch.setenv("AIRFLOW__SENSORPOOL__SENSORS_ENABLED", "airflow.providers.http.*,a.B")
    assert Settings.load().sensors_enabled == ("airflow.providers.http.*", "a.B")
    monkeypatch.setenv("SENSORPOOL_SENSORS_ENABLED", "c.D")
    assert Settings.load().sensors_enabled == ("c.D",)


SOURCE = """
from airflow.providers.amazon.aws.sensors.s3 import S3KeySensor
from airflow.providers.standard.sensors.bash import BashSensor
from airflow.sdk import BaseSensorOperator


class Arrived(BaseSensorOperator):
    def poke(self, context):
        return True


class Shell(BashSensor):
    pass


class Key(S3KeySensor):
    pass
"""


@pytest.fixture
def company(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    folder = tmp_path / "company_of_airflow" / "sensors"
    folder.mkdir(parents=True)
    (folder / "files.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("company_of_airflow.sensors.files")
    for name in [name for name in sys.modules if name.startswith("company_of_airflow")]:
        del sys.modules[name]


def test_a_pattern_of_a_company_admits_its_sensors_on_the_worker(company: Any) -> None:
    pattern = "company_of_airflow.sensors.*"
    assert admitted(company.Arrived(task_id="t"), pattern) == "company_of_airflow.sensors.files.Arrived"
    assert admitted(company.Key(task_id="t", bucket_key="s3://b/k"), pattern)
    why = r"does not list company_of_airflow\.sensors\.files\.Shell by its exact name$"
    with pytest.raises(NotPoolable, match=why):
        admitted(company.Shell(task_id="t", bash_command="true"), pattern)
    exact = "company_of_airflow.sensors.files.Shell"
    assert admitted(company.Shell(task_id="t", bash_command="true"), pattern, exact) == exact


def test_the_pool_admits_the_same(company: Any) -> None:
    classes = Classes(["company_of_airflow.*"])
    for name in ("Arrived", "Key"):
        path = f"company_of_airflow.sensors.files.{name}"
        assert classes.find(path).op_classpath == path
    for name, why in {
        "Shell": f"it is derived from {BashSensor.__module__}.BashSensor, so it needs its exact name",
        "BashSensor": f"it is {BashSensor.__module__}.BashSensor, which needs an entry of its own",
        "BaseSensorOperator": "it is airflow.sdk.bases.sensor.BaseSensorOperator, which needs an entry of its own",
    }.items():
        with pytest.raises(ClassUnavailable) as refused:
            classes.find(f"company_of_airflow.sensors.files.{name}")
        assert str(refused.value).endswith(f" ({why})")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("airflow.sdk.BaseSensorOperator", ClassKind.SENSOR),
        ("airflow.sensors.base.BaseSensorOperator", ClassKind.SENSOR),
        ("airflow.providers.common.compat.sdk.BaseSensorOperator", ClassKind.SENSOR),
        ("airflow.providers.amazon.aws.sensors.base_aws.AwsBaseSensor", ClassKind.SENSOR),
        ("airflow.providers.amazon.aws.sensors.s3.S3KeySensor", ClassKind.SENSOR),
        ("airflow.sensors.filesystem.FileSensor", ClassKind.SENSOR),
        ("airflow.sensors.python.PythonSensor", ClassKind.EXACT),
        ("airflow.providers.standard.decorators.sensor.DecoratedSensorOperator", ClassKind.EXACT),
        ("airflow.sdk.bases.decorator.DecoratedOperator", ClassKind.EXACT),
        ("airflow.providers.apache.kafka.sensors.kafka.AwaitMessageSensor", ClassKind.EXACT),
        ("airflow.providers.acme.sensors.x.FileSensor", ClassKind.EXACT),
        ("airflow.providers.standard.operators.bash.BashOperator", ClassKind.EXACT),
        ("airflow.utils.log.logging_mixin.LoggingMixin", ClassKind.PLAIN),
        ("airflow.sdk.BaseOperator", ClassKind.PLAIN),
        ("airflow.providers.amazon.aws.utils.mixins.AwsBaseHookMixin", ClassKind.PLAIN),
    ],
)
def test_what_a_class_of_airflow_means_as_a_base(path: str, kind: ClassKind) -> None:
    assert catalog.catalog().kind_of(path) is kind


def test_doctor_lists_the_installed_classes_without_importing_them(tmp_path: Path) -> None:
    code = """
import json, sys
from sensorpool import Settings
from sensorpool.admin.allowed_classes import look
settings = Settings.load(sensors_enabled="airflow.providers.*,airflow.providers.acme.*")
found = [[each.level, each.said, each.classes] for each in look(settings)]
print(json.dumps([found, [name for name in sys.modules if name.startswith("airflow.providers")]]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True, cwd=tmp_path
    )
    found, imported = json.loads(done.stdout.splitlines()[-1])
    assert imported == []
    assert {path for _, _, classes in found for path in classes} == catalog.proved().poolable
    standard = catalog.proved().versions["airflow.providers.standard"].version
    [said] = [said for level, said, _ in found if level == "ok" and "standard" in said]
    assert said.startswith(f"{ALL} stands for 6 classes of airflow.providers.standard {standard}: DateTimeSensor, ")
    assert said.endswith("FileSensor, and 3 more (--json names them)")
    assert [said for level, said, _ in found if level == "warning"] == [
        "airflow.providers.acme.* stands for no class: docs/sensors.md lists none below it as poolable; "
        "name its classes exactly, or mend the pattern"
    ]


def test_doctor_says_which_version_the_classes_were_proved_with(monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(allowed_classes, "version", lambda name: "99.0")
    [finding] = allowed_classes.look(Settings.load(sensors_enabled="airflow.providers.http.*"))
    proved = catalog.proved().versions["airflow.providers.http"].version
    assert f"of airflow.providers.http 99.0 (proved with {proved}): HttpSensor" in finding.said
