"""Results of settled instances as messages of bounded size. A message is a hint, so it may leave large values out."""

from collections.abc import Iterator, Sequence
from typing import Any

from sensorpool.model.json_text import read_json
from sensorpool.model.values import Settled

MESSAGE = 1_000_000  # bytes of a message; a single instance may take more
_LARGE_VALUE = 64 * 1024  # bytes: a larger XCom value is left out of the message; the database has it
_SMALL_VALUE = 1024  # bytes: the bound for each value, where all values together exceed one message
_NAMES = 400  # bytes of an instance without its texts


def result_of(settled: Settled) -> dict[str, Any]:
    """Return a settled instance as a JSON object."""
    key = settled.key
    return {
        "id": settled.id,
        "dag_id": key.dag_id,
        "task_id": key.task_id,
        "run_id": key.run_id,
        "map_index": key.map_index,
        "try_number": key.try_number,
        "state": str(settled.state),
        "ending": str(settled.ending),
        "reason": settled.reason,
        "xcom_value": None if settled.xcom_value is None else read_json(settled.xcom_value),
    }


def results_of(settled: Sequence[Settled]) -> Iterator[list[dict[str, Any]]]:
    """Yield the bodies of messages of bounded size, each a list of JSON objects.

    A value that is too large is left out, and ``xcom_value_left_out`` is true: the database has the value.
    """
    of_values = sum([_spelt(each.xcom_value) for each in settled if each.xcom_value is not None])
    largest = _LARGE_VALUE if of_values <= MESSAGE else _SMALL_VALUE
    body: list[dict[str, Any]] = []
    weight = 0
    for each in settled:
        left_out = each.xcom_value is not None and _spelt(each.xcom_value) > largest
        own = weigh(each, with_value=not left_out)
        if body and weight + own > MESSAGE:
            yield body
            body, weight = [], 0
        body.append(
            result_of(each._replace(xcom_value=None)) | {"xcom_value_left_out": True} if left_out else result_of(each)
        )
        weight += own
    if body:
        yield body


def weigh(settled: Settled, *, with_value: bool = True) -> int:
    """Return about how many bytes an instance takes as JSON; in memory it takes at least so many."""
    key = settled.key
    weight = _NAMES + _spelt(key.dag_id) + _spelt(key.task_id) + _spelt(key.run_id)
    if settled.reason is not None:
        weight += _spelt(settled.reason)
    if with_value and settled.xcom_value is not None:
        weight += _spelt(settled.xcom_value)
    return weight


def _spelt(text: str) -> int:
    return len(text) if text.isascii() else 6 * len(text)
