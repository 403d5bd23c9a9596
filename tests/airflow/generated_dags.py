"""DAGs that are made up: sensors with all kinds of templates, from a seed. The same number makes the same DAG."""

import datetime as dt
import random
from collections.abc import Callable, Sequence
from typing import Any

import jinja2
import pendulum
from airflow.providers.amazon.aws.sensors.s3 import S3KeySensor
from airflow.providers.common.sql.sensors.sql import SqlSensor
from airflow.providers.http.sensors.http import HttpSensor
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.sensors.date_time import DateTimeSensor
from airflow.providers.standard.sensors.external_task import ExternalTaskSensor
from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk import DAG, Param, TaskGroup

VALUES = (
    *("ds", "ds_nodash", "ts", "ts_nodash", "ts_nodash_with_tz", "run_id", "task_instance_key_str", "logical_date"),
    *("data_interval_start", "data_interval_end", "params.name", "params['many'][0]", "params.many", "dag_run.conf"),
    *("dag_run.conf['key']", "dag_run.conf.get('none', 'x')", "dag_run.run_id", "dag_run.dag_id", "dag_run.run_after"),
    *("dag_run.start_date", "dag_run.logical_date", "dag_run.partition_key", "dag.dag_id", "dag.timezone"),
    *("dag.description", "dag.start_date", "dag.tags | sort", "dag.default_args.owner", "dag.default_args['retries']"),
    *("task.task_id", "task.owner", "task.retries", "task.queue", "task.pool", "ti.task_id", "ti.dag_id", "ti.run_id"),
    *("ti.try_number", "ti.map_index", "task_instance.task_id", "var.value.place", "var.value.get('none', 'x')"),
    *("var.json.many", "var.json.many.a", "conn.store.host", "conn.store.login", "conn.store.schema"),
    *("conn.store.extra_dejson.a", "macros.ds_add(ds, 7)", "macros.timedelta(days=2)", "'a' ~ 3", "range(3) | list"),
    *("(data_interval_start - macros.timedelta(hours=1)).isoformat()", "logical_date.strftime('%Y/%m/%d')"),
    *("logical_date.add(days=1)", "macros.datetime(2026, 3, 4)", "macros.dateutil.parser.parse(ds)", "2 ** 10"),
    *("[1, 'x', ds]", "{'a': run_id}", "none", "true", "data_interval_end.in_timezone('Asia/Tokyo')"),
)
# names that a triggerer does not have, has otherwise, or asks for without an answer; and errors, natively too
OTHERS = (
    *("ti.xcom_pull('before')", "ti.hostname", "ti.start_date", "ti", "task_instance.state", "task.timeout", "task"),
    *("dag.schedule", "dag.owner", "dag.fileloc", "dag.default_args", "dag", "dag_run.state", "dag_run.run_type"),
    *(
        "dag_run.note",
        "dag_run",
        "prev_ds",
        "prev_start_date_success",
        "inlets",
        "outlets",
        "inlet_events",
        "test_mode",
    ),
    *(
        "triggering_asset_events",
        "partition_key",
        "map_index_template",
        "task_state_store",
        "macros.nothing",
        "params.no",
    ),
    *(
        "dag.default_args.none",
        "dag.default_args.get('owner')",
        "nothing",
        "nothing.at_all",
        "var.value.none",
        "var.no.x",
    ),
    *("conn.none.host", "ds.__class__", "1 / 0", "ds | unknown", "ds is unknown", "ti[params.name]", "mine", "mine(3)"),
)
FILTERS = ("upper", "lower", "length", "string", "default('d')", "trim", "replace('-', '/')", "e", "tojson")
DATES = ("ds", "ds_nodash", "ts", "ts_nodash", "ts_nodash_with_tz")
BLOCKS = (
    "{{% if params.name == 'n' %}}{0}{{% else %}}no{{% endif %}}",
    "{{% for one in params.many %}}{0}{{{{ loop.index }}}}{{% endfor %}}",
    "{{% set kept = {1} %}}{{{{ kept }}}}",
    "{{% with other = {1} %}}{{{{ other }}}}{{% endwith %}}",
    "{{# a remark #}}{0}",
    "{{%- if true -%}}  {0}  {{%- endif -%}}",
    "{{% filter upper %}}{0}{{% endfilter %}}",
    "{{% raw %}}{{{{ ds }}}}{{% endraw %}}{0}",
    "{{% set text %}}{0}{{% endset %}}{{{{ text }}}}",
    "{{% do [].append(1) %}}{0}",
)
OTHER_BLOCKS = (
    "{{% macro m(x) %}}{{{{ x }}}}{{% endmacro %}}{{{{ m({1}) }}}}",
    "{{% include 'other' %}}{0}",
    "{{% block a %}}{0}{{% endblock %}}",
    "{{% if %}}{0}",
    "{0}{{{{ ds",
)


class Choice:
    """Makes choices from a seed.

    :param unlike: how often a part is chosen that a triggerer does not have as a worker has it: from 0 to 1.
    """

    def __init__(self, seed: int, unlike: float) -> None:
        self._random = random.Random(seed)
        self._unlike = unlike

    def one(self, of: Sequence[Any]) -> Any:
        """Choose one."""
        return self._random.choice(of)

    def happens(self, chance: float) -> bool:
        """Whether something with a chance from 0 to 1 happens."""
        return self._random.random() < chance

    def expression(self) -> str:
        """Make an expression of Jinja's."""
        made: str = self.one(OTHERS) if self.happens(self._unlike) else self.one(VALUES)
        if self.happens(0.15):
            made = f"({made}) | {self.one(FILTERS)}"
        if self.happens(0.1):
            made = f"{self.one(('logical_date', 'data_interval_end'))} | {self.one(DATES)}"
        if self.happens(0.1):
            made = f"{made} if params.name else {self.one(VALUES)}"
        return made

    def text(self) -> str:
        """Make a text, with or without a template."""
        kind = self._random.random()
        if kind < 0.1:
            return str(
                self.one(("plain", "/data/x", "", " ", "ä€\n", "{ no template }", "100 %", "a\r\nb", "#", "{%%}")[:9])
            )
        made = (
            f"{self.one(('', '/data/', 'x '))}{{{{ {self.expression()} }}}}{self.one(('', '/y', chr(10), chr(10) * 2))}"
        )
        if kind < 0.3:
            made = self.one(OTHER_BLOCKS if self.happens(self._unlike) else BLOCKS).format(made, self.expression())
        if kind > 0.9:
            made += f"{{{{ {self.expression()} }}}}"
        return made

    def value(self, depth: int = 2) -> Any:
        """Make a text, or a container of values."""
        if depth == 0 or self.happens(0.5):
            return self.one((1, 2.5, None, True)) if self.happens(0.1) else self.text()
        many = range(self._random.randint(0, 3))
        if self.happens(0.5):
            return {f"k{number}": self.value(depth - 1) for number in many}
        return [self.value(depth - 1) for _ in many]


def _sensors(make: Choice) -> list[Callable[[str], Any]]:
    def texts() -> dict[str, str]:
        return {f"k{number}": make.text() for number in range(2)}

    waits = {"mode": make.one(("poke", "poke", "reschedule")), "soft_fail": make.happens(0.2)}
    return [
        lambda name: FileSensor(task_id=name, filepath=make.text(), **waits),
        lambda name: HttpSensor(
            task_id=name, endpoint=make.text(), request_params=make.value() or {}, headers=texts(), **waits
        ),
        lambda name: ExternalTaskSensor(
            task_id=name, external_dag_id=make.text(), external_task_ids=[make.text(), make.text()], **waits
        ),
        lambda name: SqlSensor(task_id=name, conn_id="c", sql=make.text(), parameters=make.value(), **waits),
        lambda name: S3KeySensor(task_id=name, bucket_name="b", bucket_key=[make.text(), "x"], **waits),
        lambda name: DateTimeSensor(task_id=name, target_time=make.one(("{{ data_interval_end }}", "{{ ts }}", "x"))),
    ]


def dag_of(number: int) -> Any:
    """Make a DAG; about half of them have only templates that a triggerer has as a worker has them.

    Some have settings of their own for templates, or sensors in groups.
    """
    make = Choice(number, unlike=0.3 if number % 2 else 0.0)
    zone = make.one((dt.UTC, pendulum.timezone("Europe/Amsterdam"), dt.timezone(dt.timedelta(hours=-9))))
    more: dict[str, Any] = {}
    if make.happens(0.2):
        more = make.one(
            (
                {"user_defined_macros": {"mine": str}},
                {"user_defined_filters": {"unknown": str}},
                {"render_template_as_native_obj": True},
                {"jinja_environment_kwargs": {"trim_blocks": True}},
                {"template_undefined": jinja2.Undefined},
            )
        )
    with DAG(
        f"generated{number}",
        schedule=None,
        start_date=dt.datetime(2024, 5, 6, 7, 8, tzinfo=zone),
        tags=[f"t{one}" for one in range(3)],
        description=make.one(("of many", None, "{{ ds }}", "two\nlines")),
        default_args={"owner": make.one(("me", "you")), "retries": 2, "on_failure_callback": print},
        params={"name": Param("n", type="string"), "many": [1, "x"], "no": None}
        if number % 3
        else {"name": "n", "many": [2]},
        **more,
    ) as dag:
        before = EmptyOperator(task_id="before", owner="another")
        for place in range(3):
            sensor = make.one(_sensors(make))
            if make.happens(0.1):
                with TaskGroup(f"group{place}"):
                    sensor(f"wait{place}")
            else:
                before >> sensor(f"wait{place}")
    dag.relative_fileloc = f"generated{number}.py"
    return dag
