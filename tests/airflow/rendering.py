"""The template contexts of a task: that of its worker, and that of a triggerer, made by Airflow's own code."""

import datetime as dt
from typing import Any

from airflow.api_fastapi.execution_api.datamodels.taskinstance import DagRun as DagRunOfServer
from airflow.executors.workloads.task import TaskInstanceDTO
from airflow.jobs.triggerer_job_runner import TriggerRunner
from airflow.sdk.api.datamodels._generated import TIRunContext
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from sensorpool.airflow.start import one_task


def of_worker(task: Any, ti: TaskInstanceDTO, run: TIRunContext) -> dict[str, Any]:
    """Return the template context that Airflow's task runner makes (`task_runner.parse`).

    :param task: of the DAG file.
    """
    runtime = RuntimeTaskInstance.model_construct(
        **ti.model_dump(exclude_unset=True),
        task=task,
        _ti_context_from_server=run,
        max_tries=run.max_tries,
        start_date=dt.datetime.now(dt.UTC),
    )
    return dict(runtime.get_template_context())


def of_triggerer(dag: dict[str, Any], ti: TaskInstanceDTO, run: DagRunOfServer) -> dict[str, Any]:
    """Return the template context that a triggerer makes for a trigger of ours.

    :param dag: serialized, with all of its tasks.
    """
    data = one_task.with_one_task(dag, ti.task_id)
    assert data is not None
    runtime = TriggerRunner.create_runtime_ti(ti, data, run.model_dump(exclude_unset=True))
    return dict(runtime.get_template_context())
