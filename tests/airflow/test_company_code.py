"""Code of a company that the sensors of Airflow's providers run, beside the state of a hook: none runs unseen."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("airflow.providers.common.sql")

from airflow.providers.amazon.aws.hooks import base_aws
from airflow.providers.amazon.aws.hooks.s3 import S3Hook
from airflow.providers.amazon.aws.sensors.s3 import S3KeySensor
from airflow.providers.common.sql.sensors.sql import SqlSensor
from airflow.providers.http.sensors.http import HttpSensor

from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.pool.adapters.sensor import adapt
from sensorpool.airflow.proof.arguments import rebuild
from sensorpool.airflow.proof.watch import process_start
from sensorpool.errors import HandBack
from tests.airflow.company_hook import Company, reasons_of, sql_sensor
from tests.airflow.running import in_dag

# its process

PROCESS: dict[str, tuple[str, str]] = {
    "umask": ("os.umask(0o027)", "changes the umask of its process"),
    "a program": (
        "os.environ['AIRFLOW_CTX_TASK_ID'] if sql == 'x' else __import__('subprocess').run(['/bin/true'], check=True)",
        "starts a program",
    ),
    "the environment": ("os.environ['ROLE_OF_HOOK'] = sql", "sets ROLE_OF_HOOK in the environment of its process"),
}


@pytest.fixture
def own_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process gets back what a test changes."""
    monkeypatch.setenv("ROLE_OF_HOOK", "")
    monkeypatch.setenv("AIRFLOW_CTX_DAG_ID", "dag")
    umask = os.umask(0o022)
    yield
    os.umask(umask)


@pytest.mark.usefixtures("own_process")
@pytest.mark.parametrize("how", PROCESS)
def test_a_hook_that_works_with_its_process(company_hook: Company, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    asks, why = PROCESS[how]
    company_hook(asks=asks)
    reasons = reasons_of(sql_sensor(), monkeypatch)
    assert any(why in reason for reason in reasons)


@pytest.mark.usefixtures("own_process")
def test_a_hook_that_changes_the_process_of_the_pool(company_hook: Company) -> None:
    company_hook(asks="os.umask(0o027) if sql == 'x' else 0")
    pool = adapt(SqlSensor)
    assert pool(conn_id="acme", sql="SELECT 1").poke({}) is False
    with pytest.raises(HandBack, match="pokes in the pool have changed the umask of their process"):
        pool(conn_id="acme", sql="x").poke({})


def test_a_hook_that_takes_a_file_away(company_hook: Company, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "orders.csv"
    path.touch()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    company_hook(asks="os.remove(sql)")
    with pytest.raises(HandBack, match="its poke removes"):
        adapt(SqlSensor)(conn_id="acme", sql=str(path)).poke({})
    assert path.exists()


@pytest.mark.parametrize("asks", ["sql", "sys.maxsize if sql == 'x' else os.environ.get('ROLE_OF_HOOK')"])
def test_a_hook_whose_code_names_what_its_task_has_changed(
    company_hook: Company, monkeypatch: pytest.MonkeyPatch, asks: str
) -> None:
    company_hook(asks=f"'a' if sql == 'SELECT 1' else {asks}")
    process_start.remember()
    monkeypatch.setenv("ROLE_OF_HOOK", "of the task")
    reasons = reasons_of(sql_sensor(), monkeypatch)
    assert [("ROLE_OF_HOOK" in reason) for reason in reasons] == ([True] if "ROLE" in asks else [])


# what replaces a part of a provider


class AcmeSessionFactory(base_aws.BaseSessionFactory):
    """Makes the sessions of all of AWS's hooks, by ``[aws] session_factory``."""

    roles: ClassVar[list[str]] = []

    def create_session(self, deferrable: bool = False) -> Any:
        """Keep the role of the first session."""
        self.roles.append("a")
        return super().create_session(deferrable)


@pytest.fixture
def session_factory(monkeypatch: pytest.MonkeyPatch) -> type:
    """A company's session factory is configured, and a key of S3 is looked for by it."""

    def head_object(self: Any, *_: Any) -> None:
        self.get_session()

    monkeypatch.setattr(AcmeSessionFactory, "roles", [])
    monkeypatch.setattr(base_aws, "SessionFactory", AcmeSessionFactory)
    monkeypatch.setattr(S3Hook, "head_object", head_object)
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", "aws://a:b@")
    return AcmeSessionFactory


def test_a_session_factory_that_keeps_state(session_factory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    key = {"bucket_key": "k", "bucket_name": "b"}
    (reason,) = reasons_of(in_dag(S3KeySensor, **key), monkeypatch)
    assert ".AcmeSessionFactory.roles" in reason
    assert session_factory.roles == ["a"]
    with pytest.raises(HandBack, match=r"AcmeSessionFactory\.roles"):
        adapt(S3KeySensor)(**key).poke({})
    assert session_factory.roles == ["a", "a"]


# what an argument gives


class Calls:
    """An object that can be called."""

    def __call__(self, *_: Any) -> bool:
        return True


class Role(str):
    """A text with code of its own."""

    def __str__(self) -> str:
        return "admin"


@pytest.mark.parametrize("given", [lambda *_: True, Calls(), Calls], ids=["function", "object", "class"])
@pytest.mark.parametrize(
    ("cls", "arguments", "name"),
    [
        (SqlSensor, {"conn_id": "c", "sql": "s"}, "success"),
        (SqlSensor, {"conn_id": "c", "sql": "s"}, "failure"),
        (SqlSensor, {"conn_id": "c", "sql": "s"}, "selector"),
        (HttpSensor, {"endpoint": "e"}, "response_check"),
        (S3KeySensor, {"bucket_key": "s3://b/k"}, "check_fn"),
    ],
)
def test_a_callable_argument_runs_on_its_worker(cls: Any, arguments: dict[str, Any], name: str, given: Any) -> None:
    with pytest.raises(NotPoolable, match=f"its argument {name} is a callable"):
        rebuild.poke_context_of(in_dag(cls, **arguments, **{name: given}))


@pytest.mark.parametrize(
    "hook_params", [{"hook_class": Calls}, {"role": Calls()}, {"role": Role("guest")}], ids=["class", "object", "text"]
)
def test_a_companys_object_among_the_parameters_of_a_hook_runs_on_its_worker(hook_params: Any) -> None:
    with pytest.raises(NotPoolable):
        rebuild.poke_context_of(sql_sensor(hook_params=hook_params))
