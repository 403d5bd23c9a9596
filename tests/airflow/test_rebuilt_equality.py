"""The sensor built is the one proved: the order of mappings, parts that an equality leaves out, added arguments."""

import dataclasses
import datetime as dt
import json
from pathlib import Path
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import pytest
from airflow.sdk import BaseSensorOperator
from airflow.sdk.bases.sensor import PokeReturnValue

pytest.importorskip("airflow.providers.http")

from airflow.providers.common.sql.sensors.sql import SqlSensor
from airflow.providers.http.sensors.http import HttpSensor

from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.pool.adapters import sensor as adapter
from sensorpool.airflow.proof.arguments import external_inputs, mapping_order, portable_values, rebuild
from sensorpool.airflow.proof.state import equality, value_digest
from sensorpool.airflow.result import Landing
from sensorpool.errors import HandBack
from sensorpool.model.identity import canonical_context, identify
from tests.airflow.running import Flag, in_dag


class FirstRule(BaseSensorOperator):
    """Answers with its first rule."""

    template_fields = ("rules",)

    def __init__(self, *, rules: Any, also: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rules = rules
        self.also = also

    def poke(self, context: Any) -> Any:
        """Return its first rule."""
        return next(iter(self.rules.values()))


class DeclaredRule(FirstRule):
    """Says itself what its condition is."""

    poke_context_fields = ("rules",)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def poke(self, context: Any) -> Any:
        """Return its first rule."""
        return super().poke(context)


def registered(sensor: Any) -> dict[str, Any]:
    """Return a poke_context as the pool reads it."""
    return json.loads(canonical_context(rebuild.poke_context_of(sensor)))


@pytest.mark.parametrize("cls", [FirstRule, DeclaredRule])
def test_the_order_of_a_mapping_is_part_of_the_condition(cls: Any) -> None:
    contexts = [registered(in_dag(cls, rules=rules)) for rules in ({"b": False, "a": True}, {"a": True, "b": False})]
    assert [adapter.adapt(cls)(**context).poke({}) for context in contexts] == [False, True]
    assert identify("a.B", contexts[0]) != identify("a.B", contexts[1])


@pytest.mark.parametrize(
    "rules",
    [
        {"z": {"b": [1, {"y": 1, "x": 2, "a": 3}], "a": {}}, "y": ({"d": 1, "c": {"b": 1, "a": 2}},)},
        {"b": dt.date(2026, 1, 1), "a": {"k", "j"}},
        {"a": 1, "b": {}},
        {"é b": 1, "a\u2028": 2, "": 3},
    ],
)
def test_an_order_is_put_back_however_deep(rules: Any) -> None:
    context = registered(in_dag(FirstRule, rules=rules, also=[{"z": 1, "a": 2}]))
    again = rebuild.build_in_pool(FirstRule, context)
    assert equality.is_equal(again.rules, rules)
    assert list(again.also[0]) == ["z", "a"]
    assert registered(in_dag(FirstRule, also=[{"z": 1, "a": 2}], rules=rules)) == context  # arguments have no order


def test_an_order_that_was_told_of_other_arguments_is_refused() -> None:
    context = registered(in_dag(FirstRule, rules={"b": 1, "a": 2}))
    for odd in ("(order)=9:1,0", "(order)=1:0,0", "(order)=1:0", "(order)=x", "(order)=1:-1,0"):
        with pytest.raises(ValueError, match=r"other arguments|invalid literal"):
            mapping_order.restore(context, odd)
        with pytest.raises(HandBack, match="cannot be built"):
            rebuild.build_in_pool(FirstRule, context | {external_inputs.NAME: odd})


def test_the_order_of_what_a_constructor_makes() -> None:
    """It is compared, and not carried: it comes from elsewhere."""
    assert not equality.is_equal({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert value_digest.digest(value_digest.canonical_json({"a": 1, "b": 2})) != value_digest.digest(
        value_digest.canonical_json({"b": 2, "a": 1})
    )
    assert value_digest.digest(value_digest.canonical_json([{"a": 1}])) == value_digest.digest(
        value_digest.canonical_json([{"a": 1}])
    )


def test_sensors_that_were_read_keep_their_identity() -> None:
    unsorted, in_order = ({"z": "1", "a": "2"}, {"a": "2", "z": "1"})
    sql = [registered(in_dag(SqlSensor, conn_id="c", sql="s", parameters=each)) for each in (unsorted, in_order)]
    assert sql[0] == sql[1] == {"conn_id": "c", "sql": "s", "parameters": in_order}
    http = [registered(in_dag(HttpSensor, endpoint="e", request_params=each)) for each in (unsorted, in_order)]
    assert http[1] == {"endpoint": "e", "request_params": in_order}
    assert list(rebuild.build_in_pool(HttpSensor, http[0]).request_params) == ["z", "a"]  # a signature may go by it


@dataclasses.dataclass(unsafe_hash=True)
class Target:
    """Equal to one with another marker."""

    path: str
    marker: str = dataclasses.field(compare=False, default="")


@dataclasses.dataclass(slots=True)
class Slotted:
    """The same, without a dictionary."""

    path: str
    marker: str = dataclasses.field(compare=False, repr=False, default="")


class Text(str):
    """Has more than its text."""


class Rules(dict[str, Any]):
    """Has more than its items."""


def marked(value: Any, marker: str) -> Any:
    """Put something where no equality looks."""
    value.marker = marker
    return value


class Marks(BaseSensorOperator):
    """Makes what the test says of its task's name."""

    makes: ClassVar[Any] = None

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.target = type(self).makes(self.task_id)

    def poke(self, context: Any) -> bool:
        """Look."""
        return False


HIDDEN = {
    "object": lambda name: Target("a", name),
    "slots": lambda name: Slotted("a", name),
    "key": lambda name: {Target("a", name): 1},
    "set": lambda name: {Target("a", name)},
    "list": lambda name: [Target("a", name)],
    "text": lambda name: marked(Text("a"), name),
    "mapping": lambda name: marked(Rules(a=1), name),
    "nested": lambda name: marked(Target("a"), [Target("b", name)]),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("makes", HIDDEN.values(), ids=HIDDEN)
def test_what_an_equality_leaves_out_counts(makes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Marks, "makes", staticmethod(makes))
    with pytest.raises(NotPoolable, match="its attribute target is another one"):
        rebuild.poke_context_of(in_dag(Marks))
    monkeypatch.setattr(Marks, "makes", staticmethod(lambda _: makes("x")))
    rebuild.poke_context_of(in_dag(Marks))


class Partner(Flag):
    """Says for itself what its condition is."""

    poke_context_fields = ("flag",)


class Regional(Partner):
    """Adds an argument, and knows nothing of that."""

    def __init__(self, *, region: str = "us", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.region = region


class Other(Partner):
    """Pokes in its own way."""

    def poke(self, context: Any) -> Any:
        """Look."""
        return super().poke(context)


class Plain(Partner):
    """Is poked as its base."""

    text = "x"


def test_a_declaration_holds_for_the_class_that_makes_it() -> None:
    assert registered(in_dag(Regional, flag="x", region="eu")).keys() == {"flag", "region", external_inputs.NAME}
    assert external_inputs.NAME in registered(in_dag(Other, flag="x"))
    assert registered(in_dag(Plain, flag="x")) == registered(in_dag(Partner, flag="x")) == {"flag": "x"}


class Duck:
    """Is no PokeReturnValue."""

    xcom_value = is_done = "it"


def pooled(found: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Poke in the pool."""
    monkeypatch.setattr(Flag, "answers", {"x": found})
    return adapter.adapt(Flag)(flag="x").poke({})


@pytest.mark.parametrize("value", [Path("/a"), [Text("a")], Rules(a=1)], ids=repr)
def test_a_value_that_would_come_back_as_another_is_left_to_its_worker(
    value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = Landing.read(pooled(PokeReturnValue(True, {"b": value}), monkeypatch).xcom_value)
    assert landing == Landing(None, {}, {"": landing.lost[""]})
    kept = {"b": dt.datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")), "a": ({1, 2}, [1.0, None], frozenset({1}))}
    assert repr(portable_values.load(pooled(PokeReturnValue(True, kept), monkeypatch).xcom_value)) == repr(kept)


def test_only_a_poke_return_value_has_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pooled(Duck(), monkeypatch) is True
