"""Results of settled instances as messages of bounded size. A message is a hint, so it may leave large values out."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from sensorpool.model.json_text import read_json
from sensorpool.model.values import Settled

MESSAGE = 1_000_000  # bytes of a message; a single instance may take more
_LARGE_VALUE = 64 * 1024  # bytes: a larger XCom value is left out of the message; the database has it
_SMALL_VALUE = 1024  # bytes: the bound for each value, where all values together exceed one message
_NAMES = 400  # bytes of an instance without its texts
_BETWEEN = ", "


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


def bodies_of(settled: Sequence[Settled]) -> Iterator[tuple[str, set[str]]]:
    """Yield the bodies of messages of bounded size, as JSON texts, each with the dag_ids in it.

    A value that is too large is left out, and ``xcom_value_left_out`` is true: the database has the value.
    """
    of_values = sum([len(each.xcom_value) for each in settled if each.xcom_value is not None])
    largest = _LARGE_VALUE if of_values <= MESSAGE else _SMALL_VALUE
    said: list[str] = []
    dag_ids: set[str] = set()
    weight = 0
    for each in settled:
        text = _text_of(each, largest)
        if said and weight + len(text) > MESSAGE:
            yield _body(said), dag_ids
            said, dag_ids, weight = [], set(), 0
        said.append(text)
        dag_ids.add(each.key.dag_id)
        weight += len(text) + len(_BETWEEN)
    if said:
        yield _body(said), dag_ids


def _body(said: Sequence[str]) -> str:
    return f'{{"settled": [{_BETWEEN.join(said)}]}}'


def _text_of(settled: Settled, largest: int) -> str:
    """Return what `result_of` says as JSON, without a value that is too large."""
    if settled.xcom_value is not None and len(settled.xcom_value) > largest:
        return json.dumps(result_of(settled._replace(xcom_value=None)) | {"xcom_value_left_out": True})
    return json.dumps(result_of(settled))


def weigh(settled: Settled, *, with_value: bool = True) -> int:
    """Return about how many bytes an instance takes in memory."""
    texts = [*settled.key[:3], settled.reason, settled.xcom_value if with_value else None]
    return _NAMES + sum([len(each) for each in texts if each is not None])
