"""Hooks of a company by which the sensors of Airflow's providers ask: what sensors share by them."""

import importlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.providers.common.sql")

from airflow.providers.common.sql.sensors.sql import SqlSensor

from sensorpool.airflow.compat import hook_classes
from sensorpool.airflow.pool.adapters.sensor import adapt
from sensorpool.airflow.proof.watch import hooks_in_pool
from sensorpool.errors import HandBack
from tests.airflow.company_hook import Company, first_poke_of, reasons_of, sql_sensor, told_by
from tests.airflow.running import in_dag
from tests.airflow.versions import ProvidersOfTask

CHANGES: dict[str, tuple[str, dict[str, str]]] = {
    "a token of the class": ("AcmeHook.token", {"fields": "token = None", "asks": "AcmeHook.token = 't'"}),
    "a count of the class": ("AcmeHook.n", {"fields": "n = 0", "asks": "type(self).n += 1"}),
    "a set of the class": ("AcmeHook.seen", {"fields": "seen = set()", "asks": "self.seen.add(sql)"}),
    "a count of its constructor": ("AcmeHook.made", {"fields": "made = 0", "built": "AcmeHook.made += 1"}),
    "a global": ("ROLE", {"module": "ROLE = None", "asks": "global ROLE; ROLE = sql"}),
    "in a function that it calls": (
        "SEEN",
        {"module": "SEEN = []\ndef note(x): SEEN.append(x)", "asks": "note(sql)"},
    ),
    "in another module": (
        "state.SEEN",
        {"module": "from ACME import state", "state": "SEEN = []", "asks": "state.SEEN.append(1)"},
    ),
    "in a module that it imports": (
        "late.TOKENS",
        {"asks": "from ACME.late import ask; ask(sql)", "late": "TOKENS = {}\ndef ask(x): TOKENS[x] = 't'"},
    ),
    "of a base": (
        "base.Base.token",
        {
            "module": "from ACME import base",
            "base": "from airflow.providers.common.sql.hooks.sql import DbApiHook\nclass Base(DbApiHook): token = None",
            "fields": "pass\nAcmeHook0 = base.Base\nclass AcmeHook(base.Base):\n    conn_name_attr = 'acme_conn_id'",
            "asks": "base.Base.token = 't'",
        },
    ),
    "a cached function": (
        "token",
        {"module": "@functools.cache\ndef token(): return os.environ.get('PATH')", "asks": "token()"},
    ),
    "a session's header": (
        "SESSION",
        {"module": "import requests\nSESSION = requests.Session()", "asks": "SESSION.headers['X-Tenant'] = sql"},
    ),
    "a header for a while": (
        "SESSION",
        {
            "module": "import requests\nSESSION = requests.Session()",
            "asks": "SESSION.headers['X-Tenant'] = sql; sql.upper(); del SESSION.headers['X-Tenant']",
        },
    ),
}


@pytest.mark.parametrize("how", CHANGES)
def test_what_a_hook_changes_keeps_the_sensor_on_its_worker(
    company_hook: Company, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    name, texts = CHANGES[how]
    company_hook(**texts)
    (reason,) = reasons_of(sql_sensor(), monkeypatch)
    assert reason.startswith("its poke changes acme_")
    assert f".{name}, which all sensors of a process share" in reason


_NOT_IN_THE_POOL = {
    "a cached function",
    "a header for a while",
    "in a module that it imports",
}  # the first poke sees these


@pytest.mark.parametrize("how", sorted(CHANGES.keys() - _NOT_IN_THE_POOL))
def test_what_a_hook_changes_in_the_pool_hands_back_all_who_get_it(company_hook: Company, how: str) -> None:
    _, texts = CHANGES[how]
    company_hook(**texts)
    pool = adapt(SqlSensor)
    first, second = (pool(conn_id="acme", sql=f"SELECT {n}") for n in (1, 2))
    for pooled in (first, second, pool(conn_id="acme", sql="SELECT 1")):
        with pytest.raises(HandBack, match="pokes in the pool have changed"):
            pooled.poke({})


KEEPS: dict[str, dict[str, str]] = {
    "nothing": {},
    "reads": {"module": "ROLES = {'a': [1]}", "fields": "role = 'x'", "asks": "ROLES['a'], AcmeHook.role"},
    "its own": {"asks": "self.role = sql; self.seen = {sql}"},
    "a cache of what an argument says": {
        "module": "@functools.cache\ndef bare(sql): return sql.upper()",
        "asks": "bare(sql)",
    },
    "a session that it only uses": {
        "module": "import requests\nSESSION = requests.Session()",
        "asks": "SESSION.prepare_request(requests.Request('GET', 'http://p/', headers={'X-Tenant': sql}))",
    },
}


@pytest.mark.parametrize("how", KEEPS)
def test_a_hook_that_keeps_nothing_is_pooled(company_hook: Company, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    company_hook(**KEEPS[how])
    told = told_by(sql_sensor(), monkeypatch)
    assert "hooks:AcmeHook.conn_type=" in told["doc"]  # it was watched
    pooled = adapt(SqlSensor)(**told)
    assert [pooled.poke({}) for _ in range(3)] == [False] * 3


ROLE = {
    "fields": "role_of_process = None",
    "asks": "AcmeHook.role_of_process = AcmeHook.role_of_process or self.role",
    "answer": "int(AcmeHook.role_of_process == 'admin')",
}


def test_one_sensor_does_not_land_by_what_another_has_left(company_hook: Company) -> None:
    """Natively each poke has a process of its own, and the second sensor finds no role of the first."""
    module = company_hook(**ROLE)
    pool = adapt(SqlSensor)
    admin, guest = (pool(conn_id="acme", sql="SELECT 1", hook_params={"role": role}) for role in ("admin", "guest"))
    with pytest.raises(HandBack, match=r"AcmeHook\.role_of_process"):
        admin.poke({})
    assert module().AcmeHook.role_of_process == "admin"  # by this the guest would land
    with pytest.raises(HandBack, match=r"AcmeHook\.role_of_process"):
        guest.poke({})


def test_a_hook_is_denied_before_it_is_made(company_hook: Company) -> None:
    module = company_hook(module="ASKED = []\nROLE = 'a'", asks="ASKED.append(sql)")
    pool = adapt(SqlSensor)
    with pytest.raises(HandBack):
        pool(conn_id="acme", sql="SELECT 1").poke({})
    with pytest.raises(HandBack):
        pool(conn_id="acme", sql="SELECT 2").poke({})
    assert module().ASKED == ["SELECT 1"]


def test_a_change_between_pokes_hands_it_back(company_hook: Company) -> None:
    module = company_hook(fields="seen = []")
    pool = adapt(SqlSensor)
    pooled = pool(conn_id="acme", sql="SELECT 1")
    assert pooled.poke({}) is False
    module().AcmeHook.seen.append(1)
    with pytest.raises(HandBack, match=r"AcmeHook\.seen"):
        pooled.poke({})


def test_an_error_by_changed_state_fails_no_sensor(company_hook: Company) -> None:
    company_hook(fields="n = 0", asks="AcmeHook.n += 1; raise ValueError('the token is another role\\'s')")
    with pytest.raises(HandBack, match=r"AcmeHook\.n"):
        adapt(SqlSensor)(conn_id="acme", sql="SELECT 1").poke({})


@pytest.mark.parametrize("company_hook", ["airflow.providers.acme", "airflow.providers.common.acme"], indirect=True)
def test_a_provider_of_a_company_is_no_provider_of_airflow(
    company_hook: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    company_hook(fields="seen = []", asks="self.seen.append(1)")
    (reason,) = reasons_of(sql_sensor(), monkeypatch)
    assert "acme.hooks.AcmeHook.seen" in reason


def test_the_hooks_of_airflows_providers_are_not_looked_at() -> None:
    """They have caches of what their arguments say."""
    runtime = ProvidersOfTask()
    known = [runtime.hooks[name] for name in ("postgres", "http", "aws", "sftp", "redis", "hiveserver2", "fs")]
    for hook in known:
        assert hook is not None
        module, _, name = hook.hook_class_name.rpartition(".")
        cls = getattr(importlib.import_module(module), name)
        assert not hook_classes.companies_classes(cls), hook.hook_class_name


def test_a_sensor_asks_by_a_hook_of_airflows_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.postgres.hooks.postgres import PostgresHook

    def get_records(self: Any, *_: Any, **__: Any) -> Any:
        type(self).asked_before = True
        return [[0]]

    monkeypatch.setattr(PostgresHook, "asked_before", False, raising=False)
    monkeypatch.setattr(PostgresHook, "get_records", get_records)
    monkeypatch.setenv("AIRFLOW_CONN_PG", "postgres://h/d")
    first, reasons = first_poke_of(sql_sensor(conn_id="pg"), monkeypatch)
    assert PostgresHook.asked_before  # type: ignore[attr-defined]  # of this test
    assert (reasons, len(first.hooks)) == ([], 0)
    pooled = adapt(SqlSensor)(conn_id="pg", sql="SELECT 1")
    assert pooled.poke({}) is False
    assert pooled.poke({}) is False


OTHERS = """
from airflow.providers.common.sql.sensors.sql import SqlSensor
from airflow.sdk import BaseHook
from airflow.sdk.bases.sensor import BaseSensorOperator

class Declared(SqlSensor):
    poke_context_fields = ("conn_id", "sql")

class Partner(BaseSensorOperator):
    def poke(self, context):
        hook = BaseHook.get_hook("acme")
        return bool(hook.get_records("SELECT 1")[0][0])
"""


def test_a_class_that_says_what_it_depends_on_is_left_alone(
    company_hook: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = company_hook(fields="token = None", asks="AcmeHook.token = 't'", others=OTHERS)
    declared = module("others").Declared
    told = told_by(in_dag(declared, conn_id="acme", sql="SELECT 1"), monkeypatch)
    assert module().AcmeHook.token == "t"
    module().AcmeHook.token = None
    pooled = adapt(declared)(**told)
    assert [pooled.poke({}), pooled.poke({})] == [False, False]
    assert module().AcmeHook.token == "t"


def test_a_companys_sensor_gets_the_hook_of_another_package(
    company_hook: Company, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    company_hook(fields="n = 0", asks="AcmeHook.n += 1")
    name = f"partner_of_{abs(hash(str(tmp_path)))}"
    (tmp_path / "site-packages" / f"{name}.py").write_text(OTHERS)
    partner = importlib.import_module(name).Partner
    (reason,) = reasons_of(in_dag(partner), monkeypatch)
    assert ".hooks.AcmeHook.n" in reason
    with pytest.raises(HandBack, match=r"hooks\.AcmeHook\.n"):
        adapt(partner)().poke({})


@pytest.mark.filterwarnings("ignore:ProvidersManager.hooks is deprecated")
def test_a_hook_of_airflows_own_connection_class(company_hook: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.models.connection import Connection

    company_hook(fields="n = 0", asks="AcmeHook.n += 1")
    monkeypatch.setattr(SqlSensor, "_get_hook", lambda _: Connection("acme", conn_type="acme").get_hook())
    (reason,) = reasons_of(sql_sensor(), monkeypatch)
    assert ".hooks.AcmeHook.n" in reason
    with pytest.raises(HandBack, match=r"AcmeHook\.n"):
        adapt(SqlSensor)(conn_id="acme", sql="SELECT 1").poke({})


def test_a_hook_whose_base_is_of_another_company_hook(
    company_hook: Company, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"core_of_{abs(hash(str(tmp_path)))}"
    text = """
from airflow.providers.common.sql.hooks.sql import DbApiHook
class CoreHook(DbApiHook):
    token = None
    def ask(self): CoreHook.token = "t"
"""
    (tmp_path / "site-packages" / f"{name}.py").write_text(text)
    base = f"conn_name_attr0 = None\nclass AcmeHook({name}.CoreHook):\n    conn_name_attr = 'acme_conn_id'"
    company_hook(f"import {name}", "self.ask()", fields=base)
    (reason,) = reasons_of(sql_sensor(), monkeypatch)
    assert f"{name}.CoreHook.token" in reason


def test_a_hook_that_another_class_makes(company_hook: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    """The class that a provider names is called, and may give a hook of another class."""
    inner = """
        from airflow.providers.common.sql.hooks.sql import DbApiHook
        class Inner(DbApiHook):
            conn_name_attr = "acme_conn_id"
            token = None
            def get_records(self, *args, **kwargs):
                Inner.token = "t"
                return [[0]]
    """
    factory = "class AcmeHook:\n    def __new__(cls, **kwargs): return inner.Inner(acme_conn_id='acme')"
    company_hook("from ACME import inner", fields=f"other = 1\n{factory}\nclass _:", inner=inner)
    (reason,) = reasons_of(sql_sensor(), monkeypatch)
    assert ".inner.Inner.token" in reason


# what a sensor keeps

KEEPERS: dict[str, str] = {
    "from its constructor": """
class Partner(BaseSensorOperator):
    def __init__(self, *, role="guest", **kwargs):
        super().__init__(**kwargs)
        self.hook = BaseHook.get_hook("acme", {"role": role})
""",
    "from its first poke": """
class Partner(BaseSensorOperator):
    def __init__(self, *, role="guest", **kwargs):
        super().__init__(**kwargs)
        self.role = role

    @cached_property
    def hook(self):
        return BaseHook.get_hook("acme", {"role": self.role})
""",
}
_KEEPER = """
from functools import cached_property
from airflow.sdk import BaseHook
from airflow.sdk.bases.sensor import BaseSensorOperator
{keeper}
    def poke(self, context):
        return bool(self.hook.get_records("SELECT 1")[0][0])
"""


@pytest.mark.parametrize("how", KEEPERS)
def test_a_hook_that_a_sensor_keeps(
    company_hook: Company, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It is got once; its state counts at each poke."""
    module = company_hook(**ROLE)
    name = f"keeper_of_{abs(hash(str(tmp_path)))}"
    (tmp_path / "site-packages" / f"{name}.py").write_text(_KEEPER.format(keeper=KEEPERS[how]))
    partner = importlib.import_module(name).Partner
    (reason,) = reasons_of(in_dag(partner, role="guest"), monkeypatch)
    assert ".hooks.AcmeHook.role_of_process" in reason
    module().AcmeHook.role_of_process = None
    pool = adapt(partner)
    quiet, guest = pool(role=None), pool(role="guest")
    assert [quiet.poke({}), quiet.poke({})] == [False, False]
    module().AcmeHook.role_of_process = "admin"  # by another's poke
    for pooled in (quiet, guest):
        with pytest.raises(HandBack, match=r"AcmeHook\.role_of_process"):
            pooled.poke({})


# what its import finds


def test_what_the_import_of_a_hook_finds_is_part_of_the_condition(
    company_hook: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = company_hook(module="CUTOFF = '2026-01-01'", asks="CUTOFF")
    told = told_by(sql_sensor(), monkeypatch)
    assert adapt(SqlSensor)(**told).poke({}) is False
    hooks_in_pool.forget()
    module().CUTOFF = "2026-01-02"  # the pool has imported it on another day
    with pytest.raises(HandBack, match=r"its hook has another \S+hooks\.CUTOFF in the pool than on its worker"):
        adapt(SqlSensor)(**told).poke({})
    other = told_by(sql_sensor(), monkeypatch)
    assert other != told
    assert adapt(SqlSensor)(**other).poke({}) is False
