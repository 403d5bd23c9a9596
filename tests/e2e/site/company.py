"""What a company has beside its DAGs: a sensor of its own, callbacks, an e-mail back end. It knows no sensorpool."""

import json
import os
import time
from pathlib import Path
from typing import Any

from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk.bases.sensor import BaseSensorOperator, PokeReturnValue

try:
    from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, AirflowTaskTimeout
except ImportError:  # Airflow 3.1
    from airflow.exceptions import AirflowFailException, AirflowSkipException, AirflowTaskTimeout

WORK = Path(os.environ.get("CLUSTER_WORK", "."))


def note(kind: str, **what: Any) -> None:
    """Note what happened: one file a note, for many processes write at once."""
    folder = WORK / "notes"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{time.time_ns()}-{os.getpid()}"
    path.with_suffix(".tmp").write_text(json.dumps({"kind": kind, "at": time.time(), **what}))
    path.with_suffix(".tmp").rename(path.with_suffix(".json"))


class Throttled(Exception):
    """Keeps more than a text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status

    def __str__(self) -> str:
        return f"{self.status}: {self.args[1]}"


class FlagSensor(BaseSensorOperator):
    """Does what a file says: nothing while it is not there.

    :param flag: name of the file in the work folder.
    """

    template_fields = ("flag",)

    def __init__(self, *, flag: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.flag = flag

    def poke(self, context: Any) -> bool | PokeReturnValue:
        note("poke", flag=self.flag, pid=os.getpid())
        path = WORK / self.flag
        if not path.exists():
            return False
        word, _, rest = path.read_text().partition(" ")
        match word:
            case "land":
                return True
            case "xcom":
                return PokeReturnValue(is_done=True, xcom_value=json.loads(rest))
            case "skip":
                raise AirflowSkipException(rest or "nothing to do")
            case "fail":
                raise AirflowFailException(rest or "will never come")
            case "throttle":
                raise Throttled(429, rest)
            case "overrun":
                raise AirflowTaskTimeout(rest)
            case "raise":
                raise RuntimeError(rest or "cannot look")
        return False


class RegionSensor(FlagSensor):
    """Waits for the flag of the region that its process is told."""

    def poke(self, context: Any) -> bool | PokeReturnValue:
        self.log.info("region: %s", os.environ.get("COMPANY_REGION"))
        return (WORK / f"{self.flag}_{os.environ.get('COMPANY_REGION')}").exists()


def today() -> str:
    """Return the day that a file names: tests turn it over."""
    path = WORK / "today"
    return path.read_text() if path.exists() else "no_day"


class DatedSensor(FlagSensor):
    """Finds out in its constructor which day's flag it waits for."""

    template_fields = ("prefix",)

    def __init__(self, *, prefix: str, **kwargs: Any) -> None:
        super().__init__(flag=f"dated_{today()}", **kwargs)
        self.prefix = prefix


class ThoroughSensor(FlagSensor):
    """Does more in its execute than the base class."""

    def execute(self, context: Any) -> Any:
        """Return something of its own."""
        super().execute(context)
        return f"{self.flag} is here"


class WrappedSensor(FileSensor):
    """Has an execute of its own, which only waits."""

    def execute(self, context: Any) -> None:
        """Wait."""
        super().execute(context)


class PatientSensor(FileSensor):
    """Waits for another file first, by a sensor within its execute."""

    def execute(self, context: Any) -> Any:
        """Wait twice."""
        first = f"{self.filepath}_first"
        FileSensor(task_id="inner", filepath=first, poke_interval=2, timeout=600).execute(context)
        super().execute(context)
        return "both are here"


def noting(kind: str) -> Any:
    """Return a callback that notes its call."""

    def callback(context: Any) -> None:
        ti = context["ti"]
        note(
            "callback",
            callback=kind,
            dag_id=ti.dag_id,
            run_id=ti.run_id,
            task_id=ti.task_id,
            map_index=ti.map_index,
            try_number=ti.try_number,
            exception=type(context["exception"]).__name__ if context.get("exception") else None,
        )

    return callback


def send_email(to: Any, subject: str, html_content: str, *_: Any, **__: Any) -> None:
    """Note an e-mail."""
    note("email", to=to, subject=subject)
