"""The blueprint of a sensor: what the parse of its DAG file tells its trigger, as JSON in one string.

One string, because Airflow decodes the arguments of a trigger before its class can refuse them, and an error there ends
the whole triggerer.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

LONGEST = 32_768  # characters: it stands in the serialized DAG, and in a row for each waiting task


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A sensor before its templates are rendered. Spans are seconds.

    :param op_classpath: the class path of the sensor.
    :param arguments: the arguments of its constructor (`proof.codec`).
    :param templated: the names of those arguments that are template fields.
    :param direct: whether a success may be written without a worker (`poolable.ends_directly`).
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

    def as_text(self) -> str:
        """Return the JSON; equal blueprints have equal texts in every process."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def read(cls, text: Any) -> Self:
        """Read a text of `as_text`.

        :raises ValueError: when it is none, or of a version with other fields.
        """
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise ValueError(f"its blueprint cannot be read: {error}") from None
