"""A step of a Celery canvas that waits in the pool, without a worker held: ``chain(a.s(), wait_for(…), b.s())``.

The step is a task of the user's application, so its workers import this module: ``app.conf.include =
["sensorpool.canvas"]``. It runs twice under one id. First it registers and ends without a result, as a task that
retries does. When its condition has ended, the pool sends it again, with all that Celery had sent along (the rest of
the chain, the chord, the links), and it returns the value of the poke, or fails.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from celery import Signature, shared_task, states
from celery.exceptions import Ignore

from sensorpool.client.default import default_pool
from sensorpool.client.instance import Instance
from sensorpool.client.pool import Pool
from sensorpool.client.validate import check_name, condition
from sensorpool.errors import Refused, SensorFailed, Unreachable
from sensorpool.model.callback_messages import WAIT_FOR
from sensorpool.model.identity import identify
from sensorpool.model.json_text import read_json
from sensorpool.model.states import State
from sensorpool.model.values import Span

SENSING = "SENSING"
"""The state of a step in Celery's result back end while it waits."""


@shared_task(name=WAIT_FOR, bind=True, autoretry_for=(Unreachable,), retry_backoff=True, max_retries=None)
def step(
    self: Any,
    *given: Any,
    sensor: str,
    poke_context: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    ended: bool = False,
) -> Any:
    """Register, or return what came of it.

    :param given: the result of the step before; with ``ended`` the result of the wait comes first.
    :raises SensorFailed: when the condition did not land.
    :raises Refused: when it cannot be registered.
    """
    if ended:
        return _value_of(given[0])
    context = given[0] if poke_context is None and given else poke_context
    if self.request.is_eager or self.request.called_directly:
        return _waited(default_pool().register(sensor, context, **_without_name(options)))
    pool = default_pool()
    key = _key(self, (options or {}).get("name"))
    options = _within_memory(self, pool, _without_name(options))
    self.update_state(state=SENSING)  # before: its end may be told at once
    # `expires` is for a step that starts late: this one has started, and a broker would drop its end
    again = self.signature_from_request(args=(), kwargs={"sensor": sensor, "ended": True}, expires=None)
    made = pool.register(sensor, context, on_settled=again, **key, **options)
    if made.state != State.SENSING:
        _put_back(self, made)
    raise Ignore


def wait_for(
    sensor: object,
    poke_context: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    poke_interval: Span | None = None,
    timeout: Span | None = None,
    execution_timeout: Span | None = None,
    soft_fail: bool = False,
    silent_fail: bool = False,
    never_fail: bool = False,
    exponential_backoff: bool = False,
    max_wait: Span | None = None,
    family: str | None = None,
    backend: str | None = None,
    location: str | None = None,
) -> Signature:
    """Return a step for a chain, a group or a chord. It holds no worker while it waits.

    What its poke returned as a value is the argument of the next step. A step that does not land fails with
    `SensorFailed`, and the steps after it do not run.

    :param sensor: a class path, a sensor class, an object of one, or a ``pathlib.Path``.
    :param poke_context: the arguments of the class; without them, the result of the step before.
    :param name: what `sensorpool list` and the pages call the step, as its ``task_id``; default:
        ``sensorpool.wait_for``.
    :param poke_interval: see `sensorpool.register`, as for all others.
    :raises Refused: when the sensor has no class path, its arguments are not JSON, or the name is no text of 1 to 250
        characters.
    """
    op_classpath, found = condition(sensor, poke_context)
    if name is not None:
        check_name("name", name)
    context = None if found is None else read_json(identify(op_classpath, found).poke_context)
    given = {
        "name": name,
        "poke_interval": poke_interval,
        "timeout": timeout,
        "execution_timeout": execution_timeout,
        "soft_fail": soft_fail,
        "silent_fail": silent_fail,
        "never_fail": never_fail,
        "exponential_backoff": exponential_backoff,
        "max_wait": max_wait,
        "family": family,
        "backend": backend,
        "location": location,
    }
    options = {name: _seconds(value) for name, value in given.items() if value is not None and value is not False}
    return step.s(sensor=op_classpath, poke_context=context, options=options)


def _without_name(options: Mapping[str, Any] | None) -> dict[str, Any]:
    return {option: value for option, value in (options or {}).items() if option != "name"}


def _key(task: Any, name: str | None) -> dict[str, Any]:
    """Return the key of a step: its task id, so that a step that Celery delivers twice registers once."""
    return {"dag_id": task.app.main or "celery", "task_id": name or WAIT_FOR, "run_id": task.request.id}


def _within_memory(task: Any, pool: Pool, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options of a step that does not wait longer than Celery's result back end remembers its chord.

    :raises Refused: when it names a longer timeout: the body would never run, and nothing would say so.
    """
    expires = task.app.conf.result_expires
    # of a chain in the header, Celery tells the last step of the chord
    after = [(each.get("options") or {}).get("chord") for each in task.request.chain or ()]
    if not any((task.request.chord, *after)) or not expires:
        return options
    kept = _seconds(expires)
    if (waits := options.get("timeout")) is None:
        return {**options, "timeout": min(pool.settings.timeout, kept)}
    if waits > kept:
        raise Refused(
            f"this step of a chord may wait for {waits:g} s, and Celery forgets the chord after {kept:g} s, so that "
            "its body would never run: give wait_for a shorter timeout, or raise result_expires"
        )
    return options


def _put_back(task: Any, instance: Instance) -> None:
    """Store the end of a step that Celery delivers once more after it: what follows it has run, or will."""
    try:
        task.backend.store_result(task.request.id, _waited(instance), states.SUCCESS)
    except SensorFailed as error:
        task.backend.store_result(task.request.id, error, states.FAILURE)


def _value_of(result: Mapping[str, Any]) -> Any:
    if result["state"] == State.SUCCESS:
        return result["xcom_value"]
    raise SensorFailed(f"instance {result['id']} {result['state']}: {result['reason'] or result['ending']}")


def _waited(instance: Instance) -> Any:
    """Wait here, as an eager step does."""
    instance.wait()
    found = instance.result
    assert found is not None  # it has ended
    return _value_of({"id": instance.id, **found._asdict()})


def _seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value
