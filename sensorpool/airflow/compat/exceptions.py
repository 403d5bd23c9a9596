"""The exceptions by which a task ends, skips, waits or asks: Airflow's versions have them in different modules."""

from sensorpool.airflow.compat import features

if features.has(features.TASK_EXCEPTIONS):
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowRescheduleException,
        AirflowSensorTimeout,
        AirflowSkipException,
        AirflowTaskTerminated,
        AirflowTaskTimeout,
        DagRunTriggerException,
        DownstreamTasksSkipped,
        TaskDeferralError,
        TaskDeferralTimeout,
        TaskDeferred,
    )
else:
    from airflow.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowRescheduleException,
        AirflowSensorTimeout,
        AirflowSkipException,
        AirflowTaskTerminated,
        AirflowTaskTimeout,
        DagRunTriggerException,
        DownstreamTasksSkipped,
        TaskDeferralError,
        TaskDeferralTimeout,
        TaskDeferred,
    )

__all__ = [
    "REQUESTS_OF_TASK",
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowRescheduleException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "AirflowTaskTerminated",
    "AirflowTaskTimeout",
    "DagRunTriggerException",
    "DownstreamTasksSkipped",
    "TaskDeferralError",
    "TaskDeferralTimeout",
    "TaskDeferred",
]

# by which a task asks its task runner for something
REQUESTS_OF_TASK: tuple[type[BaseException], ...] = (
    *(AirflowRescheduleException, AirflowTaskTerminated, DagRunTriggerException),
    *(DownstreamTasksSkipped, TaskDeferred),
)
if features.has(features.HUMAN_INPUT):
    from airflow.sdk.exceptions import TaskAwaitingInput

    REQUESTS_OF_TASK = (*REQUESTS_OF_TASK, TaskAwaitingInput)
