"""The borders of a registration: at each one the last value that is taken, and the first that is refused."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from harness.scripted import ScriptedSensor
from sensorpool import Key, Registration, Settings, wait_for
from sensorpool.client import validate
from sensorpool.client.validate import CheckedRegistration
from sensorpool.errors import Refused
from sensorpool.model.execution_context import ExecutionContext
from sensorpool.model.values import LONGEST_SPAN
from sensorpool.poke.classes import Classes
from tests.support.builders import classpath

KEY = Key("d", "t", "r")
CONTEXT = {"folder": "/nowhere", "name": "x"}


class Counts:
    """A sensor that counts its constructions."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1

    def poke(self, context: Any) -> bool:
        """Find nothing."""
        return False


SCRIPTED = classpath(ScriptedSensor)
SETTINGS = Settings.load(sensors_enabled=(SCRIPTED, classpath(Counts)), poke_interval=7, timeout=70)
CLASSES = Classes(SETTINGS.sensors_enabled)


def check(*, try_out: bool = False, **named: Any) -> CheckedRegistration:
    given: dict[str, Any] = {"sensor": SCRIPTED, "poke_context": CONTEXT, "key": KEY} | named
    return validate.check(Registration(**given), SETTINGS, CLASSES, try_out=try_out)


def refused(**named: Any) -> str:
    with pytest.raises(Refused) as caught:
        check(**named)
    said = str(caught.value)
    assert "\n" not in said
    return said


@pytest.mark.parametrize("part", ["dag_id", "task_id", "run_id"])
@pytest.mark.parametrize("value", ["x", "x" * 250, "ä b", "💣", "a.b/c:d", "a\u00a0b"])
def test_a_name_in_a_key_is_taken(part: str, value: str) -> None:
    assert getattr(check(key=KEY._replace(**{part: value})).key, part) == value


@pytest.mark.parametrize("part", ["dag_id", "task_id", "run_id"])
@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "''"),
        (None, "None"),
        (7, "7"),
        (b"x", "b'x'"),
        ("x" * 251, f"'{'x' * 79}"),
        ("a\x00b", "'a\\x00b'"),
        (" a", "' a'"),
        ("a\n", "'a\\n'"),
        ("a\nb", "'a\\nb'"),
        ("a\u202eb", "'a\\u202eb'"),
        ("a\ud83d", "'a\\ud83d'"),
        ("\u00a0a", "'\\xa0a'"),
    ],
    ids=repr,
)
def test_a_name_in_a_key_is_refused(part: str, value: Any, says: str) -> None:
    said = refused(key=KEY._replace(**{part: value}))
    assert said == f"{part} must be a text of 1 to 250 printable characters without spaces around it, not {says}"


@pytest.mark.parametrize(("part", "least"), [("map_index", -1), ("try_number", 0)], ids=["map_index", "try_number"])
def test_a_number_in_a_key_has_its_bounds(part: str, least: int) -> None:
    for value in (least, 2**31 - 1):
        assert getattr(check(key=KEY._replace(**{part: value})).key, part) == value
    for wrong in (least - 1, 2**31, True, 1.0, "1", None):
        assert refused(key=KEY._replace(**{part: wrong})) == f"{part} must be a whole number of at least {least}"


def test_a_key_that_is_left_out_is_made_here() -> None:
    one, other = check(key=None), check(key=None)
    assert (one.is_fresh, check().is_fresh) == (True, False)
    assert one.key != other.key
    assert one.key.task_id == "ScriptedSensor"


@pytest.mark.parametrize("key", [("d", "t", "r"), (), "d", 5], ids=repr)
def test_a_key_is_a_key(key: Any) -> None:
    assert refused(key=key) == f"key must be a sensorpool.Key of dag_id, task_id and run_id, not {key!r}"


def test_a_key_is_named_whole_or_not_at_all() -> None:
    assert validate.key_of() is None
    assert validate.key_of(map_index=-1, try_number=1) is None
    assert validate.key_of(dag_id="d", task_id="t", run_id="r") == KEY
    assert validate.key_of(dag_id="d", task_id="t", run_id="r", map_index=None, try_number=0) == KEY._replace(
        try_number=0
    )
    for left_out in ("dag_id", "task_id", "run_id"):
        with pytest.raises(Refused, match="name all three"):
            validate.key_of(**{name: "x" for name in ("dag_id", "task_id", "run_id") if name != left_out})


@pytest.mark.parametrize("part", [{"try_number": 2}, {"try_number": "x"}, {"map_index": 0}, {"map_index": []}], ids=str)
def test_a_part_of_a_key_is_no_key(part: dict[str, Any]) -> None:
    for read in (validate.key_of, lambda **named: validate.from_mapping(mapping(**named))):
        with pytest.raises(Refused, match="belong to a key: name dag_id, task_id and run_id, too"):
            read(**part)


@pytest.mark.parametrize(
    ("name", "takes_zero"),
    [("poke_interval", False), ("timeout", True), ("execution_timeout", True), ("max_wait", False)],
)
def test_a_span_has_its_bounds(name: str, takes_zero: bool) -> None:
    for value, seconds in (
        (LONGEST_SPAN, LONGEST_SPAN),
        (1, 1.0),
        (0.001, 0.001),
        (timedelta(minutes=1), 60.0),
        *(((0, 0.0),) if takes_zero else ()),
    ):
        found = getattr(check(**{name: value}).execution_context, name)
        assert (found, type(found)) == (seconds, float)
    least = "at least" if takes_zero else "more than"
    out_of_bounds = (
        -1,
        -0.001,
        LONGEST_SPAN * 1.001,
        10**400,
        timedelta(seconds=-1),
        *(() if takes_zero else (0, 0.0)),
    )
    for wrong in out_of_bounds:
        assert refused(**{name: wrong}) == f"{name} must be {least} 0 and at most ten years, in seconds"
    for wrong in (True, "1", b"1", [1], {}, math.nan, math.inf, -math.inf, 1j):
        assert refused(**{name: wrong}) == f"{name} must be a number of seconds"


@pytest.mark.parametrize("name", ["soft_fail", "silent_fail", "never_fail", "exponential_backoff"])
def test_a_flag_is_true_or_false(name: str) -> None:
    for value, means in ((True, True), (False, False), (None, False)):
        assert getattr(check(**{name: value}).execution_context, name) is means
    for wrong in (1, 0, 1.0, "true", [], object()):  # true, and equal to it, was checked a moment ago
        assert refused(**{name: wrong}) == f"{name} must be true or false"


def test_what_is_left_out_is_as_the_settings_say() -> None:
    assert check().execution_context == ExecutionContext(poke_interval=7.0, timeout=70.0)


def test_two_flags_exclude_each_other_as_in_airflow() -> None:
    assert "mutually exclusive" in refused(soft_fail=True, never_fail=True)
    assert check(soft_fail=True, silent_fail=True).execution_context.silent_fail


@pytest.mark.parametrize("value", ["x", "x" * 64, "ä"])
def test_an_external_id_is_taken(value: str) -> None:
    assert check(external_id=value).external_id == value


@pytest.mark.parametrize("value", ["", "x" * 65, 7, b"x", "a\nb", "a\ud83d"], ids=repr)
def test_an_external_id_is_refused(value: Any) -> None:
    assert refused(external_id=value).startswith("external_id ")


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (None, None),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1_000),
        ("1970-01-01T00:00:01.5+00:00", 1_500),
        ("1969-12-31T23:59:59+00:00", -1_000),
    ],
)
def test_a_logical_date_is_milliseconds(value: Any, milliseconds: int | None) -> None:
    assert check(logical_date=value).logical_date == milliseconds


@pytest.mark.parametrize("value", ["tomorrow", "", 7, [], object()], ids=["word", "empty", "number", "list", "object"])
def test_a_logical_date_that_is_none_is_refused(value: Any) -> None:
    assert refused(logical_date=value).startswith("logical_date must be a date and time")


@pytest.mark.parametrize("value", [datetime(2030, 1, 31, 12), "2030-01-31T12:00:00", "2030-01-31"], ids=str)
def test_a_logical_date_without_a_time_zone_is_refused(value: Any) -> None:
    said = "logical_date has no time zone: give it one, like 2030-01-31T12:00:00+00:00"
    assert refused(logical_date=value) == said


def test_an_object_brings_its_own_context() -> None:
    given = ScriptedSensor("/nowhere", "x")
    assert (
        check(sensor=given, poke_context=None).identity
        == check(poke_context=CONTEXT | {"script": "wait", "seconds": 0.0}).identity
    )
    assert "brings its own poke_context" in refused(sensor=given)
    assert "poke_context_fields" in refused(sensor=object(), poke_context=None)


@pytest.mark.parametrize("context", [None, CONTEXT], ids=["alone", "with a context"])
def test_a_function_and_what_is_no_sensor_are_refused(context: Any) -> None:
    for given, shown in ((None, "None"), (5, "5"), (0.5, "0.5"), (True, "True"), ([1], "a list"), (CONTEXT, "a dict")):
        said = f"a sensor is a class path, a class, an object of one or a pathlib.Path, not {shown}"
        assert refused(sensor=given, poke_context=context) == said
    said = f"{__name__}.mapping is a function: put @sensorpool.sensor before it"
    assert refused(sensor=mapping, poke_context=context) == said
    with pytest.raises(Refused, match=said):
        wait_for(mapping, context)


def test_a_line_with_another_class_path_is_refused() -> None:
    with pytest.raises(Refused, match=r"pathlib\.Path, not 5$"):
        validate.check(
            validate.from_mapping({"op_classpath": 5, "poke_context": CONTEXT}), SETTINGS, CLASSES, try_out=True
        )


class Pair(tuple[str, str]):
    """A sensor that is a tuple, too."""

    poke_context_fields = ("left", "right")
    left, right = property(itemgetter(0)), property(itemgetter(1))


def test_a_tuple_with_fields_is_a_sensor() -> None:
    assert validate.condition(Pair(("x", "y")), None) == (classpath(Pair), {"left": "x", "right": "y"})


def test_a_class_is_known_by_its_path() -> None:
    found = check(sensor=ScriptedSensor, poke_context={"folder": "/nowhere", "name": "x"})
    assert found.identity.op_classpath == "harness.scripted.ScriptedSensor"

    class Within:
        """A class that no other process finds."""

    assert "is a class of a function" in refused(sensor=Within, poke_context={})


def test_a_class_of_the_program_that_was_started_has_no_path_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScriptedSensor, "__module__", "__main__")
    assert "the workers cannot import it: define it in a module" in refused(
        sensor=ScriptedSensor("/nowhere", "x"), poke_context=None
    )


@pytest.mark.parametrize(
    ("module", "is_told"),
    [
        ("no_such_package.sensors", True),
        ("no_such_module", True),
        ("json.no_such_module", True),
        ("imports_none", False),
    ],
)
def test_a_module_that_is_not_found_is_told_with_what_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, is_told: bool
) -> None:
    (tmp_path / "imports_none.py").write_text("import no_such_module_of_theirs")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(Refused) as caught:
        Classes([f"{module}.Sensor"]).find(f"{module}.Sensor")
    assert "cannot be imported: ModuleNotFoundError: No module named" in str(caught.value)
    assert ("name its folder in PYTHONPATH" in str(caught.value)) is is_told


def test_a_class_is_made_once_to_try_it_out_and_else_not_at_all() -> None:
    before = Counts.made
    check(sensor=classpath(Counts), poke_context=None)
    assert Counts.made == before
    check(sensor=classpath(Counts), poke_context=None, try_out=True)
    assert Counts.made == before + 1
    assert "does not take this poke_context" in refused(sensor=classpath(Counts), poke_context={"n": 1}, try_out=True)


def test_a_class_that_is_not_enabled_is_not_looked_for() -> None:
    assert "not enabled" in refused(sensor="no.such.Module", try_out=True)


def mapping(**named: Any) -> Mapping[str, Any]:
    return {"sensor": SCRIPTED, "poke_context": CONTEXT} | named


def test_a_mapping_has_the_arguments_of_register() -> None:
    found = validate.from_mapping(mapping(dag_id="d", task_id="t", run_id="r", try_number=2, soft_fail=True))
    assert found == Registration(sensor=SCRIPTED, poke_context=CONTEXT, key=KEY._replace(try_number=2), soft_fail=True)
    assert validate.from_mapping({"op_classpath": SCRIPTED}).sensor == SCRIPTED


def test_a_null_in_a_mapping_is_left_out() -> None:
    names = ("dag_id", "map_index", "timeout", "soft_fail", "on_settled", "logical_date")
    assert validate.from_mapping(mapping(**dict.fromkeys(names))) == Registration(sensor=SCRIPTED, poke_context=CONTEXT)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([1], "a registration is an object"),
        ({}, "op_classpath is missing"),
        ({"op_classpath": None}, "op_classpath is missing"),
        (mapping(key=KEY), "there is no field 'key'"),
        (mapping(nonsense=1), "there is no field 'nonsense'"),
        (mapping(**{"x" * 500: 1}), f"there is no field '{'x' * 80}'"),
        (mapping() | {7: 1}, "there is no field '7'"),
        (mapping(dag_id="d"), "name all three"),
    ],
    ids=lambda part: str(part)[:40],
)
def test_a_mapping_that_is_no_registration_is_refused(given: Any, says: str) -> None:
    with pytest.raises(Refused) as caught:
        validate.from_mapping(given)
    assert says in str(caught.value)
