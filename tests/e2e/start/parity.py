"""Each case three times: native, begun on a worker, begun by the scheduler.

The settings keep the first out of the pool; the second has what only a worker counts.
"""

import os
from datetime import timedelta
from typing import Any

from airflow.providers.http.sensors.http import HttpSensor
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.sensors.external_task import ExternalTaskSensor
from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk import DAG, Asset
from company import noting

WORK = os.environ["CLUSTER_WORK"]
WAYS: dict[str, dict[str, Any]] = {"native": {}, "worker": {"max_active_tis_per_dag": 100}, "scheduler": {}}
PATIENT = {"poke_interval": 2, "timeout": 600}
CALLBACKS = {f"on_{kind}_callback": noting(kind) for kind in ("success", "failure", "retry", "skipped")}
RETRIED = {"retries": 1, "retry_delay": timedelta(seconds=1)}
OTHER = {"external_dag_id": "upstream", "external_task_id": "done", "check_existence": True}
DATED = "/{{ ds }}/{{ ts_nodash }}/{{ macros.ds_add(ds, 3) }}/{{ params.kind | upper }}/{{ data_interval_end.year }}"

FILES: dict[str, dict[str, Any]] = {
    "success": {},
    "success_callbacks": CALLBACKS,
    "outlet": {"outlets": [Asset("begun")]},
    "templates": {},
    "reschedule": {"mode": "reschedule"},
    "execution_timeout": {"execution_timeout": timedelta(seconds=15), **RETRIED, **CALLBACKS},
    "timeout": {"timeout": 20, "retries": 2, **CALLBACKS},
    "timeout_soft_fail": {"timeout": 20, "soft_fail": True, **CALLBACKS},
    "timeout_never_fail": {"timeout": 20, "never_fail": True, **CALLBACKS},
}
REQUESTS: dict[str, dict[str, Any]] = {
    "error": RETRIED | CALLBACKS,
    "error_soft_fail": {"soft_fail": True, **CALLBACKS},
    "error_never_fail": {"never_fail": True, **CALLBACKS},
    "error_email": {"email": ["ops@example.com"], "email_on_failure": True},
    "error_retried": {"retries": 2, "retry_delay": timedelta(seconds=1), **CALLBACKS},
}
OTHERS: dict[str, dict[str, Any]] = {
    "external": {},
    "external_skips": {"allowed_states": ["failed"], "skipped_states": ["success"], **CALLBACKS},
    "external_fails": {"allowed_states": ["failed"], "failed_states": ["success"], **RETRIED, **CALLBACKS},
}


def before(sensor: Any) -> None:
    """Give a sensor tasks that depend on its end."""
    sensor >> EmptyOperator(task_id="after")
    sensor >> EmptyOperator(task_id="after_all_done", trigger_rule="all_done")
    sensor >> EmptyOperator(task_id="after_failure", trigger_rule="one_failed")


for way, limits in WAYS.items():
    for case, given in FILES.items():
        name = f"{way}_{case}"
        with DAG(name, schedule=None, params={"kind": "late"}):
            path = f"{WORK}/{name}_{{{{ run_id }}}}" + (DATED if case == "templates" else "")
            before(FileSensor(task_id="wait", filepath=path, **PATIENT | given | limits))
    for case, given in REQUESTS.items():
        name = f"{way}_{case}"
        with DAG(name, schedule=None):
            endpoint = f"{name}_{{{{ run_id }}}}/{{{{ ti.try_number }}}}"
            before(HttpSensor(task_id="wait", http_conn_id="backend", endpoint=endpoint, **PATIENT | given | limits))
    for case, given in OTHERS.items():
        with DAG(f"{way}_{case}", schedule=None):
            before(ExternalTaskSensor(task_id="wait", **OTHER, **PATIENT | given | limits))

with DAG("upstream", schedule=None):
    EmptyOperator(task_id="done")
