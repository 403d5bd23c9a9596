"""A patch of the triggerer: a success that it writes for a task of ours asks the dag processor for nothing.

Airflow sends the dag processor a request for the task's callback. For that it parses the whole DAG file, and then drops
the request: it calls callbacks of failures only (``TaskCallbackRequest.is_failure_callback``). A task with a success
callback resumes on a worker (`task.poolable.ends_directly`).
"""

import functools
import logging
from contextvars import ContextVar
from inspect import signature
from typing import Any

_PATCHED = "_sensorpool_send"

_ends_ours: ContextVar[bool] = ContextVar("ends_ours", default=False)
log = logging.getLogger(__name__)


def install(next_method: str) -> None:
    """Patch this process, which is a triggerer; an error leaves it as it is.

    :param next_method: the method that our tasks resume with.
    """
    try:
        from airflow.callbacks.database_callback_sink import DatabaseCallbackSink
        from airflow.models.trigger import handle_event_submit
        from airflow.triggers.base import TaskSuccessEvent

        if hasattr(DatabaseCallbackSink, _PATCHED):
            return
        submit, send = handle_event_submit.dispatch(TaskSuccessEvent), DatabaseCallbackSink.send
        if "task_instance" not in signature(submit).parameters:
            raise TypeError("what submits its events takes no task_instance")

        @functools.wraps(submit)
        def submit_success(event: Any, *arguments: Any, task_instance: Any, **named: Any) -> Any:
            token = _ends_ours.set(task_instance.next_method == next_method)
            try:
                return submit(event, *arguments, task_instance=task_instance, **named)
            finally:
                _ends_ours.reset(token)

        @functools.wraps(send)
        def send_unless_ours(sink: Any, *arguments: Any, **named: Any) -> Any:
            return None if _ends_ours.get() else send(sink, *arguments, **named)

        handle_event_submit.register(TaskSuccessEvent, submit_success)
        DatabaseCallbackSink.send = send_unless_ours
        setattr(DatabaseCallbackSink, _PATCHED, send)
    except Exception as error:
        log.warning("sensorpool: each direct success is sent to the dag processor: %s: %s", type(error).__name__, error)
