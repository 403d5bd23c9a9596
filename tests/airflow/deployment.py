"""A task in Airflow's database that waits for an instance of a real pool, and what serves its triggers."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from airflow.jobs.triggerer_job_runner import ToTriggerSupervisor, TriggerRunner
from airflow.models.taskinstance import TaskInstance
from airflow.models.trigger import Trigger
from airflow.sdk import DAG
from airflow.sdk.execution_time.comms import _RequestFrame
from airflow.utils.session import create_session
from pydantic import TypeAdapter
from sqlalchemy import select, text, update

from harness.servers import Elsewhere, Server, fresh_database
from harness.until import PATIENCE
from sensorpool import Pool, Settings
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.task import deferral
from sensorpool.airflow.triggerer import api_server, notifier
from sensorpool.airflow.triggerer.notifier import Notifier
from sensorpool.model.values import Key, Registration
from tests.airflow.metadata import Metadata
from tests.airflow.running import Flag
from tests.airflow.versions import TaskInstanceDTO, next_kwargs_of

SENSOR = "sensorpool.sensors.TimeSensor"


class Deployment:
    """A task in Airflow's database that waits for an instance, and the triggerer that serves it."""

    def __init__(self, pool: Pool, metadata: Metadata, dag_id: str = "triggerer") -> None:
        self.pool = pool
        with DAG(dag_id, schedule=None) as dag:
            Flag(task_id="wait", flag="x")
        serialized = metadata.add_dag(dag)
        self.run_id = metadata.add_run(serialized, None)
        self._task = (TaskInstance.dag_id == dag_id, TaskInstance.run_id == self.run_id)
        self.key = Key(dag_id, "wait", self.run_id, -1, 1)
        self.instance_id = self.register(self.key)

    def register(self, key: Key) -> int:
        """Register a try of the task, as it is in Airflow now; return the id of its instance."""
        waits = Registration(
            sensor=SENSOR, poke_context={"target_time": "2100-01-01T00:00:00Z"}, key=key, external_id=str(self.ti().id)
        )
        return self.pool.register_many([waits], try_out=False)[0].id

    def ti(self) -> TaskInstanceDTO:
        """Return the task instance as a trigger gets it."""
        with create_session() as session:
            return TaskInstanceDTO.model_validate(self._found(session), from_attributes=True)

    def write(self, **columns: Any) -> None:
        """Write columns of the task instance."""
        with create_session() as session:
            session.execute(update(TaskInstance).where(*self._task).values(columns))

    def start_next_try(self) -> None:
        """Clear the task, which is scheduled again."""
        with create_session() as session:
            found = self._found(session)
            found.prepare_db_for_next_try(session)
            found.try_number += 1

    def _found(self, session: Any) -> TaskInstance:
        found: TaskInstance = session.scalars(select(TaskInstance).where(*self._task)).one()
        return found

    def defer(self, **kwargs: Any) -> int:
        """Have the task wait in a trigger; return the trigger's id."""
        with create_session() as session:
            trigger = Trigger("sensorpool.airflow.trigger.PoolTrigger", kwargs)
            session.add(trigger)
            session.flush()
            change = {"state": "deferred", "trigger_id": trigger.id, "next_kwargs": {"started": 1.0}}
            session.execute(update(TaskInstance).where(*self._task).values(change))
            return int(trigger.id)

    def end(self, **columns: Any) -> None:
        """Write how the instance ended, as a pool of any version may have."""
        ended = {"state": "success", "ending": "landed", "settled_at": 1} | columns
        with self.pool.database.engine.begin() as connection:
            given = ", ".join(f"{name} = :{name}" for name in ended)
            statement = text(f"UPDATE sensor_instance SET {given} WHERE id = {self.instance_id}")
            connection.execute(statement, ended)

    def serve(self, trigger_id: int, trigger: Any) -> dict[str, Any]:
        """Run a trigger as the triggerer does, to Airflow's database; return what the task is resumed with."""
        runner = TriggerRunner()
        runner.triggers[trigger_id] = {"task": None, "is_watcher": False, "name": "wait", "events": 0}  # type: ignore[typeddict-item]
        asyncio.run(asyncio.wait_for(runner.run_trigger(trigger_id, trigger), PATIENCE))
        told = runner.process_trigger_events([trigger_id])
        frame = _RequestFrame(id=1, body=told.model_dump()).as_bytes()
        received = msgspec.msgpack.Decoder(_RequestFrame).decode(frame[4:])
        message: Any = TypeAdapter(ToTriggerSupervisor).validate_python(received.body)
        (entry,) = message.events
        served, event = entry[:2]  # 3.3 adds a number
        Trigger.submit_event(trigger_id=served, event=event)
        with create_session() as session:
            task = self._found(session)
            assert (task.state, task.next_method) == ("scheduled", None)
            resumed = next_kwargs_of(task)
        assert isinstance(resumed, dict)
        return resumed["event"]


@contextmanager
def notifier_of_triggerer(
    postgres_server: Server | Elsewhere,
    postgres_template: str,
    redis_server: Server | Elsewhere,
    ours: AirflowSettings | None = None,
    **settings: Any,
) -> Iterator[Notifier]:
    """Make the notifier of a triggerer process, on a pool of its own with these settings."""
    with fresh_database(postgres_server, template=postgres_template) as url, pytest.MonkeyPatch.context() as patch:
        pool = Pool(Settings.load(database_url=url, redis_url=redis_server.start().url, **settings))
        patch.setattr(api_server, "FIRST_ANSWER", 0.0)
        patch.setattr(notifier, "SWEEP_EVERY", 1.0)
        patch.setattr(deferral, "pool", lambda: pool)
        made = Notifier(pool, ours or AirflowSettings(resume_hold=0.0))
        patch.setattr(Notifier, "of_this_process", classmethod(lambda _: made))
        yield made
        made.close()
        pool.close()
