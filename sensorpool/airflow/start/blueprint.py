"""The blueprint of a sensor: what the parse of its DAG file tells its trigger, as JSON in one string.

One string, because Airflow decodes the arguments of a trigger before its class can refuse them, and an error there ends
the whole triggerer.
"""

import json
from dataclasses import dataclass
from typing import Any, Self

from sensorpool.airflow.proof.arguments.template_defaults import is_template
from sensorpool.airflow.proof.codec import TYPE

# characters of the text as JSON: it stands in the serialized DAG, and encrypted in a row for each waiting task, where
# MySQL takes 65,535
LONGEST = 32_768


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A sensor before its templates are rendered. Spans are seconds.

    :param op_classpath: the class path of the sensor.
    :param arguments: the arguments of its constructor (`proof.codec`).
    :param templated: the names of those arguments that are template fields.
    :param direct: whether a success may be written without a worker (`poolable.ends_directly`).
    :param dag_file: a digest of its DAG's file, for a class whose proof is a first poke on a worker; empty for others.
    """

    op_classpath: str
    arguments: dict[str, Any]
    templated: list[str]
    direct: bool
    poke_interval: float
    timeout: float
    soft_fail: bool
    silent_fail: bool
    never_fail: bool
    exponential_backoff: bool
    max_wait: float | None
    dag_file: str = ""
    execution_timeout: float | None = None
    reschedule: bool = False

    def as_text(self) -> str:
        """Return the JSON; equal blueprints have equal texts in every process."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}, separators=(",", ":"))

    def subject(self) -> str:
        """Return what a first poke proves: its class, its DAG's file, and its arguments without templated texts."""
        arguments = {name: _shape(value) if name in self.templated else value for name, value in self.arguments.items()}
        return json.dumps([self.op_classpath, self.dag_file, arguments], sort_keys=True)

    @classmethod
    def read(cls, text: Any) -> Self:
        """Read a text of `as_text`.

        :raises ValueError: when it is none, or of a version with other fields.
        """
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise ValueError(f"its blueprint cannot be read: {error}") from None


def _shape(value: Any) -> Any:
    """Return a value of a template field, of its texts only whether they are templates; of a list, its different parts.

    A worker constructs a sensor with its templates, and a triggerer with what they become.
    """
    match value:
        case str():
            return "{{}}" if is_template(value) else ""
        case list():
            return sorted({json.dumps(_shape(part), sort_keys=True) for part in value})
        case dict():
            return {name: part if name == TYPE else _shape(part) for name, part in value.items()}
    return value
