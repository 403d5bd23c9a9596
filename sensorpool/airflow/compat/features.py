"""What sensorpool uses of Airflow that not every supported version has, and what it does without.

All questions for a version are asked here. ``docs/airflow.md`` has this table too; tests hold it to be complete and
true on each version (`tests/airflow/test_features.py`).
"""

from dataclasses import dataclass
from functools import cache

OLDEST = (3, 1)
NEWEST = (3, 4)


@dataclass(frozen=True, slots=True)
class Feature:
    """One thing that Airflow has in some versions.

    :param what: its name, for readers who know Airflow.
    :param since: the first version that has it, as major and minor number.
    :param without: what is done, or does not happen, in earlier versions.
    """

    what: str
    since: tuple[int, int]
    without: str


TASK_EXCEPTIONS = Feature(
    "the exceptions of tasks in `airflow.sdk.exceptions`", (3, 2), "they are taken from `airflow.exceptions`"
)
SDK_LISTENERS = Feature("listeners in `airflow.sdk.listener`", (3, 2), "they are asked for in `airflow.listeners`")
SDK_HOOKS = Feature(
    "the hooks of providers in the Task SDK", (3, 2), "the class of a Connection's hook is looked up in Airflow's core"
)
SDK_METRICS = Feature("metrics in the Task SDK", (3, 2), "they are sent by `airflow.stats`")
TASK_IDS = Feature("the ids of task instances as UUIDs in SQLAlchemy", (3, 2), "they are texts")
TEAMS = Feature("`[core] multi_team`", (3, 2), "no task has a team")
RUN_NOTES = Feature("a note on a run that a task starts", (3, 2), "the run has none, as natively")
RUN_AFTER = Feature("a `run_after` of a run that a task starts", (3, 3), "the run has none, as natively")
TEAM_OF_RUN = Feature(
    "the team of a task in its context", (3, 3), "with `[core] multi_team` every task runs natively, of whatever team"
)
START_FROM_TRIGGER = Feature(
    "the template context in a trigger that starts a task",
    (3, 3),
    "every sensor begins on a worker, whatever `start` says",
)
TRIGGER_ON_KILL = Feature(
    "triggers that hear of a mark or a clear (`on_kill`)",
    (3, 3),
    "rescue cancels what a marked or cleared task has waited for, within one round (`rescue_interval`)",
)
TASK_STATE_STORE = Feature(
    "the `task_state_store` of a task",
    (3, 3),
    'the timeout of a sensor in `mode="reschedule"` that is handed back counts anew',
)
RESUMABLE_JOBS = Feature(
    "operators on `ResumableJobMixin`", (3, 3), "there are none: `SparkSubmitOperator` waits for its job on its worker"
)
HUMAN_INPUT = Feature("tasks that wait for a person's input (`TaskAwaitingInput`)", (3, 3), "no poke asks for it")
RETRY_POLICIES = Feature("the `retry_policy` of a task", (3, 3), "no task has one")
API_SERVER_URL = Feature("a function for the URL of the execution API", (3, 3), "the URL is read from the same options")
METRIC_FUNCTIONS = Feature(
    "metrics by functions (`airflow.sdk.observability.stats`)", (3, 3), "they are sent by the class `Stats`"
)
LOOPS = Feature("task groups that loop", (3, 4), "there are none (since then a sensor in one runs natively)")
TRIES_IN_ONE_TABLE = Feature(
    "earlier tries in the table of task instances", (3, 4), "they are read from `task_instance_history`"
)

TABLE = (
    TASK_EXCEPTIONS,
    SDK_LISTENERS,
    SDK_HOOKS,
    SDK_METRICS,
    TASK_IDS,
    TEAMS,
    RUN_NOTES,
    RUN_AFTER,
    TEAM_OF_RUN,
    START_FROM_TRIGGER,
    TRIGGER_ON_KILL,
    TASK_STATE_STORE,
    RESUMABLE_JOBS,
    HUMAN_INPUT,
    RETRY_POLICIES,
    API_SERVER_URL,
    METRIC_FUNCTIONS,
    LOOPS,
    TRIES_IN_ONE_TABLE,
)


def has(feature: Feature) -> bool:
    """Whether the Airflow that is installed here has a feature.

    :raises ImportError: when none is installed.
    """
    return version() >= feature.since


@cache
def version() -> tuple[int, int]:
    """Return the major and minor number of the Airflow that is installed here.

    :raises ImportError: when none is installed.
    """
    try:
        from airflow import __version__
    except ImportError:  # a machine may have the Task SDK alone: 1.2 is that of Airflow 3.2
        from airflow.sdk import __version__ as of_sdk

        major, minor = of_sdk.split(".")[:2]
        return int(major) + 2, int(minor)
    major, minor = __version__.split(".")[:2]
    return int(major), int(minor)
