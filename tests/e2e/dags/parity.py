"""Each case twice: the DAGs whose name begins with native_ are kept out of the pool by the configuration."""

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, task
from company import FlagSensor, ThoroughSensor, Throttled, noting

try:
    from airflow.sdk.definitions.retry_policy import ExceptionRetryPolicy, RetryAction, RetryRule
except ImportError:  # before Airflow 3.3
    RETRIES_BY_POLICY: dict[str, Any] = {}
else:
    policy = ExceptionRetryPolicy(rules=[RetryRule(exception=Throttled, action=RetryAction.FAIL)])
    RETRIES_BY_POLICY = {"retries": 2, "retry_policy": policy}

PATIENT = {"poke_interval": 2, "timeout": 600}
CALLBACKS = {f"on_{kind}_callback": noting(kind) for kind in ("success", "failure", "retry", "skipped")}

CASES: dict[str, dict[str, Any]] = {
    "success": {},
    "reschedule": {"mode": "reschedule"},
    "success_callbacks": {**CALLBACKS},
    "xcom": {},
    "xcom_not_pushed": {"do_xcom_push": False},
    "outlet": {"outlets": [Asset("parity")]},
    "timeout": {"timeout": 6, "retries": 2, "retry_delay": timedelta(seconds=1), **CALLBACKS},
    "timeout_soft_fail": {"timeout": 6, "soft_fail": True, **CALLBACKS},
    "timeout_never_fail": {"timeout": 6, "never_fail": True, **CALLBACKS},
    "error": {"retries": 1, "retry_delay": timedelta(seconds=2), **CALLBACKS},
    "error_soft_fail": {"soft_fail": True, **CALLBACKS},
    "error_never_fail": {"never_fail": True, **CALLBACKS},
    "error_silent_fail": {"silent_fail": True, "timeout": 10, **CALLBACKS},
    "error_email": {"email": ["ops@example.com"], "email_on_failure": True},
    "error_of_its_own": {**RETRIES_BY_POLICY, **CALLBACKS},
    "error_asks_for_a_retry": {"retries": 1, "retry_delay": timedelta(seconds=2), **CALLBACKS},
    "skip": {**CALLBACKS},
    "fail": {"retries": 2, **CALLBACKS},
    "fail_soft_fail": {"soft_fail": True, **CALLBACKS},
    "execution_timeout": {
        "execution_timeout": timedelta(seconds=12),
        "retries": 1,
        "retry_delay": timedelta(seconds=1),
        **CALLBACKS,
    },
    "thorough": {"sensor": ThoroughSensor},
}

for mode in ("native", "pooled"):
    for case, given in CASES.items():
        options = PATIENT | given
        sensor = options.pop("sensor", FlagSensor)
        with DAG(f"{mode}_{case}", schedule=None, catchup=False) as dag:
            wait = sensor(task_id="wait", flag=f"{mode}_{case}_{{{{ dag_run.run_id }}}}", **options)
            wait >> EmptyOperator(task_id="after")
            wait >> EmptyOperator(task_id="after_all_done", trigger_rule="all_done")
            wait >> EmptyOperator(task_id="after_failure", trigger_rule="one_failed")

    with DAG(f"{mode}_mapped", schedule=None, catchup=False):
        FlagSensor.partial(task_id="wait", **PATIENT).expand(
            flag=[f"{mode}_mapped_a", f"{mode}_mapped_b"]
        ) >> EmptyOperator(task_id="after")

    with DAG(f"{mode}_mapped_dependant", schedule=None, catchup=False):

        @task
        def double(number: int) -> int:
            """Double a number."""
            return 2 * number

        double.expand(number=FlagSensor(task_id="wait", flag=f"{mode}_mapped_dependant", **PATIENT).output)
