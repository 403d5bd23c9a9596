"""What sensors of a process share: the state of their classes and modules."""

import argparse
import datetime as dt
import dis
import importlib
import json
import sys
import textwrap
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.providers.standard")

import airflow.providers
from airflow.providers.standard.sensors.filesystem import FileSensor

from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.pool.adapters.sensor import adapt
from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.arguments import rebuild
from sensorpool.airflow.proof.state import references, sensor_state, shared_state
from sensorpool.airflow.proof.state.code_names import names_in
from sensorpool.airflow.proof.state.judged_class import judged_class
from sensorpool.airflow.proof.state.shared_state import SharedState
from sensorpool.airflow.task import deferral, patch
from sensorpool.airflow.task.first_poke import FirstPoke
from sensorpool.errors import HandBack
from sensorpool.model.identity import identify
from tests.airflow.running import context_of, in_dag

Company = Callable[..., Any]
_PROVIDERS = "airflow/providers"

_HEAD = """
import collections, contextvars, dataclasses, datetime, enum, functools, itertools, logging, os, random, sys, threading
from airflow.sdk import BaseHook
from airflow.sdk.bases.sensor import BaseSensorOperator
"""
_SENSOR = """
class Partner(BaseSensorOperator):
    {fields}

    def __init__(self, *, path="p", **kwargs):
        super().__init__(**kwargs)
        self.path = path
        {built}

    def poke(self, context{argument}):
        {poke}
        return {answer}
"""


@pytest.fixture
def company(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Company]:
    """Write and import the modules of a company, of the package that a test gives; return its sensor's class."""
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    monkeypatch.syspath_prepend(tmp_path)
    package = getattr(request, "param", f"acme_{abs(hash(request.node.name))}")
    folder = tmp_path.joinpath(*package.split("."))
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    monkeypatch.setattr(airflow.providers, "__path__", [*airflow.providers.__path__, str(tmp_path / _PROVIDERS)])

    def write(
        module: str = "",
        poke: str = "",
        *,
        fields: str = "",
        built: str = "",
        argument: str = "",
        answer: str = "False",
        after: str = "",
        **others: str,
    ) -> Any:
        sensor = _SENSOR.format(fields=fields, built=built, argument=argument, poke=poke, answer=answer)
        texts = {**others, "sensors": f"{_HEAD}\n{textwrap.dedent(module)}\n{sensor}\n{textwrap.dedent(after)}"}
        for name, text in texts.items():
            (folder / f"{name}.py").write_text(text.replace("ACME", package))
        importlib.invalidate_caches()
        return importlib.import_module(f"{package}.sensors").Partner

    yield write
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{package}.")]:
        del sys.modules[name]


def reasons_of(sensor: Any, monkeypatch: pytest.MonkeyPatch, pokes: int = 1) -> list[str]:
    """Poke a sensor on its worker; return why it keeps its slot."""
    reasons: list[str] = []
    monkeypatch.setattr(deferral, "report_native", lambda _, error: reasons.append(str(error)))

    def native(sensor: Any, context: Any) -> None:
        assert not sensor.poke(context)
        sensor._get_next_poke_interval(None, lambda: 0.0, 1)

    FirstPoke(sensor, native, 10.0, list).poke(context_of(sensor))
    return reasons


def module_of(cls: type) -> Any:
    """Return the module of a class."""
    return sys.modules[cls.__module__]


def registered(cls: Any, **arguments: Any) -> dict[str, Any]:
    """Return the condition of a sensor, as the pool reads it."""
    return dict(json.loads(json.dumps(rebuild.poke_context_of(in_dag(cls, **arguments)))))


# what a poke changes

CHANGES: dict[str, tuple[str, dict[str, str]]] = {
    "a list of the class": ("Partner.tries", {"fields": "tries = []", "poke": "self.tries.append(1)"}),
    "a number of the class": ("Partner.n", {"fields": "n = 0", "poke": "type(self).n += 1"}),
    "a number by its name": ("Partner.n", {"fields": "n = -2", "poke": "Partner.n += 1"}),
    "a new attribute": ("Partner.found", {"poke": "Partner.found = 'x'"}),
    "one that goes": (
        "Partner.found",
        {"fields": "found = 'x'", "poke": "vars(Partner).get('found') and delattr(Partner, 'found')"},
    ),
    "the sensor itself": ("Partner.current", {"fields": "current = None", "poke": "Partner.current = self"}),
    "of a base": (
        "Base.seen",
        {
            "module": "class Base:\n    seen = {}",
            "after": "class Partner(Partner, Base):\n    def poke(self, context): self.seen.update(a=1)",
        },
    ),
    "a global": ("N", {"module": "N = 0", "poke": "global N; N += 1"}),
    "a new global": ("N", {"poke": "global N; N = 1"}),
    "a dict": ("SEEN", {"module": "SEEN = {}", "poke": "SEEN[self.path] = True"}),
    "in a dict of dicts": ("SEEN", {"module": "SEEN = {'a': {'b': [0]}}", "poke": "SEEN['a']['b'][0] += 1"}),
    "a set": ("SEEN", {"module": "SEEN = {1}", "poke": "SEEN.discard(1)"}),
    "a deque": ("LAST", {"module": "LAST = collections.deque([1], 1)", "poke": "LAST.append(2)"}),
    "a defaultdict": ("SEEN", {"module": "SEEN = collections.defaultdict(int)", "poke": "SEEN['a'] += 1"}),
    "bytes": ("BITS", {"module": "BITS = bytearray(2)", "poke": "BITS[0] = 1"}),
    "the end of a long list": ("SEEN", {"module": "SEEN = list(range(100_000))", "poke": "SEEN[-1] = 1"}),
    "a long dict": ("SEEN", {"module": "SEEN = dict.fromkeys(range(100_000))", "poke": "SEEN['a'] = 1"}),
    "in a function that it calls": (
        "SEEN",
        {"module": "SEEN = []\ndef note(x):\n    inner = lambda: SEEN.append(x)\n    inner()", "poke": "note(1)"},
    ),
    "in another module": (
        "state.SEEN",
        {"module": "from ACME import state", "state": "SEEN = []", "poke": "state.SEEN.append(1)"},
    ),
    "in another's function": (
        "state.N",
        {
            "module": "import ACME.state",
            "state": "N = 0\ndef note():\n    global N\n    N += 1",
            "poke": "ACME.state.note()",
        },
    ),
    "by way of an import": (
        "state.SEEN",
        {"module": "import ACME.state", "state": "SEEN = []", "poke": "from ACME.state import SEEN; SEEN.append(1)"},
    ),
    "by way of a relative import": (
        "state.SEEN",
        {"module": "import ACME.state", "state": "SEEN = []", "poke": "from . import state; state.SEEN.append(1)"},
    ),
    "in an object": (
        "TRACKER",
        {"module": "class Tracker:\n    n = 0\nTRACKER = Tracker()", "poke": "TRACKER.n += 1"},
    ),
    "in a slot of an object": (
        "TRACKER",
        {"module": "class T:\n    __slots__ = ('n',)\nTRACKER = T()\nTRACKER.n = 0", "poke": "TRACKER.n += 1"},
    ),
    "by an object's method": (
        "SEEN",
        {"module": "SEEN = []\nclass T:\n    def note(self): SEEN.append(1)\nT1 = T()", "poke": "T1.note()"},
    ),
    "by a bound method": (
        "note",
        {"module": "class T:\n    n = 0\n    def note(self): self.n += 1\nnote = T().note", "poke": "note()"},
    ),
    "of another class": ("Tracker.seen", {"module": "class Tracker:\n    seen = []", "poke": "Tracker.seen.append(1)"}),
    "a default": ("Partner.poke.seen", {"argument": ", seen=[]", "poke": "seen.append(1)"}),
    "a default by name": ("Partner.poke.seen", {"argument": ", *, seen=[]", "poke": "seen.append(1)"}),
    "a cell": (
        "one.n",
        {
            "module": """
            def count():
                n = 0
                def one():
                    nonlocal n
                    n += 1
                return one
            one = count()
            """,
            "poke": "one()",
        },
    ),
    "a function's attribute": ("Partner.poke.n", {"poke": "Partner.poke.n += 1", "after": "Partner.poke.n = 0"}),
    "by a decorator": (
        "Partner.poke.calls",
        {
            "module": """
            def counted(f):
                calls = []
                @functools.wraps(f)
                def counting(*args):
                    calls.append(1)
                    return f(*args)
                return counting
            """,
            "after": "Partner.poke = counted(Partner.poke)",
        },
    ),
    "in a property": (
        "SEEN",
        {"module": "SEEN = []", "fields": "tries = property(lambda self: SEEN.append(1))", "poke": "self.tries"},
    ),
    "in a partial": (
        "SEEN",
        {"module": "SEEN = []\nnote = functools.partial(lambda x: SEEN.append(x), 1)", "poke": "note()"},
    ),
    "a cached function": (
        "day",
        {"module": "@functools.cache\ndef day(): return datetime.date.today()", "poke": "day()"},
    ),
    "a cached function of the environment": (
        "region",
        {"module": "@functools.cache\ndef region(): return os.environ.get('PATH')", "poke": "region()"},
    ),
    "a cached function of a file": (
        "text",
        {
            "module": "@functools.cache\ndef text(path):\n    with open(path) as file: return file.name",
            "poke": "text('/dev/null')",
        },
    ),
    "a cached function of what is in a folder": (
        "names",
        {"module": "@functools.cache\ndef names(path): return os.path.exists(path)", "poke": "names('/')"},
    ),
    "a cached function that takes a file away": (
        "take",
        {
            "module": "@functools.cache\ndef take(path):\n    if os.path.join(path): return os.remove(path)",
            "poke": "take(__import__('tempfile').mkstemp()[1])",
        },
    ),
    "a cached function that calls one of these": (
        "first",
        {
            "module": """
            def day(): return datetime.date.today()
            @functools.cache
            def first(): return day()
            """,
            "poke": "first()",
        },
    ),
    "a cached function that imports": (
        "now",
        {"module": "@functools.cache\ndef now():\n    import time\n    return time.time()", "poke": "now()"},
    ),
    "a cached function of what calls": (
        "made",
        {
            "module": "MADE = {'a': datetime.date.today}\n@functools.cache\ndef made(name): return MADE[name]()",
            "poke": "made('a')",
        },
    ),
    "a cached static method": (
        "Partner.day",
        {"fields": "day = staticmethod(functools.cache(datetime.date.today))", "poke": "self.day()"},
    ),
    "a count": ("IDS", {"module": "IDS = itertools.count()", "poke": "next(IDS)"}),
    "a count of the class": ("Partner.ids", {"fields": "ids = itertools.count()", "poke": "next(self.ids)"}),
    "an iterator": ("NEXT", {"module": "NEXT = iter([1, 2])", "poke": "next(NEXT)"}),
    "a generator": ("NEXT", {"module": "NEXT = (i for i in range(9))", "poke": "next(NEXT)"}),
    "what hides how far it has come": ("NEXT", {"module": "NEXT = itertools.cycle([1, 2])", "poke": "next(NEXT)"}),
    "of a thread": ("OWN", {"module": "OWN = threading.local()", "poke": "OWN.n = 1"}),
    "of a context": ("OWN", {"module": "OWN = contextvars.ContextVar('OWN')", "poke": "OWN.set(1)"}),
    "an event": ("FOUND", {"module": "FOUND = threading.Event()", "poke": "FOUND.set()"}),
    "a client": (
        "asks",
        {
            "module": "class PartnerClient: asked = 0\nasks = None",
            "poke": "global asks; asks = asks or PartnerClient()",
        },
    ),
    "in a client": (
        "asks",
        {"module": "class PartnerClient: asked = 0\nasks = PartnerClient()", "poke": "asks.asked += 1"},
    ),
    "what is called a session": (
        "_session",
        {"module": "class One: asked = 0\n_session = One()", "poke": "_session.asked += 1"},
    ),
    "a client of each role": (
        "CLIENTS",
        {
            "module": "class RoleClient:\n    def __init__(self, role): self.role = role\nCLIENTS = {}",
            "poke": "CLIENTS['client'] = RoleClient(self.path)",
        },
    ),
    "a header": (
        "SESSION",
        {"module": "import requests\nSESSION = requests.Session()", "poke": "SESSION.headers['X-Tenant'] = self.path"},
    ),
    "a cookie": (
        "SESSION",
        {"module": "import requests\nSESSION = requests.Session()", "poke": "SESSION.cookies.set('role', self.path)"},
    ),
    "a login": (
        "SESSION",
        {"module": "import requests\nSESSION = requests.Session()", "poke": "SESSION.auth = ('me', self.path)"},
    ),
    "how a session asks": (
        "SESSION",
        {
            "module": "import requests.adapters\nSESSION = requests.Session()",
            "poke": "SESSION.mount('http://', requests.adapters.HTTPAdapter())",
        },
    ),
    "a header of another library": (
        "API_CLIENT",
        {"module": "import httpx\nAPI_CLIENT = httpx.Client()", "poke": "API_CLIENT.headers['X-Tenant'] = self.path"},
    ),
    "a new session": (
        "SESSION",
        {
            "module": "import requests\nSESSION = requests.Session()",
            "poke": "global SESSION; SESSION = requests.Session()",
        },
    ),
    "the session of a company's client": (
        "CLIENT",
        {
            "module": """
            import requests
            class PartnerClient:
                def __init__(self): self.session = requests.Session()
            CLIENT = PartnerClient()
            """,
            "poke": "CLIENT.session.headers['X-Tenant'] = self.path",
        },
    ),
    "a header of a company's session": (
        "SESSION",
        {
            "module": "import requests\nclass AcmeSession(requests.Session): n = 1\nSESSION = AcmeSession()",
            "poke": "SESSION.headers['X-Tenant'] = self.path",
        },
    ),
    "a mapping of a library": (
        "HEADERS",
        {
            "module": "from requests.structures import CaseInsensitiveDict\nHEADERS = CaseInsensitiveDict()",
            "poke": "HEADERS['X-Tenant'] = self.path",
        },
    ),
    "what is called a log": (
        "CHANGE_LOG",
        {
            "module": "class ChangeLog:\n    def __init__(self): self.last = None\nCHANGE_LOG = ChangeLog()",
            "poke": "CHANGE_LOG.last = self.path",
        },
    ),
    "hooks": ("Partner.hooks", {"fields": "hooks = {}", "poke": "self.hooks['a'] = BaseHook()"}),
    "what is called as a session is": ("SESSIONS", {"module": "SESSIONS = {}", "poke": "SESSIONS['a'] = 1"}),
    "by a registry": (
        "checks.SEEN",
        {
            "module": "import ACME.checks\nfrom ACME.registry import CHECKS",
            "registry": "CHECKS = {}\ndef check(function): CHECKS[function.__name__] = function; return function",
            "checks": "from ACME.registry import check\nSEEN = []\n@check\ndef report(x): SEEN.append(x)",
            "poke": "CHECKS['report'](1)",
        },
    ),
    "by a registry that is an object": (
        "checks.SEEN",
        {
            "module": "import ACME.checks\nfrom ACME.registry import REGISTRY",
            "registry": (
                "class Registry:\n    def __init__(self): self.checks = {}\n    def add(self, function):"
                " self.checks.setdefault('a', []).append(function); return function\nREGISTRY = Registry()"
            ),
            "checks": "from ACME.registry import REGISTRY\nSEEN = []\n@REGISTRY.add\ndef report(x): SEEN.append(x)",
            "poke": "REGISTRY.checks['a'][0](1)",
        },
    ),
    "of a class in a dict": (
        "KINDS.seen",
        {
            "module": "def api():\n    class Api:\n        seen = []\n    return Api\nKINDS = {'x': [api()]}",
            "poke": "KINDS['x'][0].seen.append(1)",
        },
    ),
    "of a class that is a key": (
        "KINDS.seen",
        {
            "module": "def api():\n    class Api:\n        seen = []\n    return Api\nKINDS = {api(): 1}",
            "poke": "list(KINDS)[0].seen.append(1)",
        },
    ),
    "by a tuple of the class": (
        "SEEN",
        {
            "module": "SEEN = []\ndef steps():\n    def step(): SEEN.append(1)\n    return (step, len)",
            "fields": "steps = steps()",
            "poke": "self.steps[0]()",
        },
    ),
    "of a class that is found by its base": (
        "kinds.Rest.seen",
        {
            "module": "import ACME.kinds\nfrom ACME.base import Api",
            "base": "class Api: pass",
            "kinds": "from ACME.base import Api\nclass Rest(Api): seen = []",
            "poke": "Api.__subclasses__()[0].seen.append(1)",
        },
    ),
    "by a function in a cell": (
        "SEEN",
        {
            "module": """
            SEEN = []
            def twice(function):
                def call(*args): function(*args); function(*args)
                return call
            def steps():
                def step(): SEEN.append(1)
                return step
            note = twice(steps())
            """,
            "poke": "note()",
        },
    ),
    "by a function of another kind": (
        "SEEN",
        {
            "module": """
            SEEN = []
            @functools.singledispatch
            def note(x): pass
            @note.register
            def _(x: int): SEEN.append(x)
            del _
            """,
            "poke": "note(1)",
        },
    ),
    "by an object that an object has": (
        "SEEN",
        {
            "module": """
            SEEN = []
            def apis():
                class Api:
                    def note(self): SEEN.append(1)
                class Apis:
                    def __init__(self): self.api = Api()
                return Apis()
            APIS = apis()
            """,
            "poke": "APIS.api.note()",
        },
    ),
    "of a metaclass": (
        "Singleton.made",
        {
            "module": """
            class Singleton(type):
                made = {}
                def __call__(cls, *args):
                    if cls not in cls.made:
                        cls.made[cls] = super().__call__(*args)
                    return cls.made[cls]
            class Api(metaclass=Singleton):
                def __init__(self, path): self.path = path
            """,
            "poke": "Api(self.path)",
        },
    ),
    "a method's decorator that is an object": (
        "Partner.connect",
        {
            "module": """
            class once:
                def __init__(self, function): functools.update_wrapper(self, function)
                def __get__(self, owner, kind=None): return functools.partial(self, owner)
                def __call__(self, owner):
                    self.result = getattr(self, 'result', None) or self.__wrapped__(owner)
                    return self.result
            """,
            "fields": "@once\n    def connect(self): return self.path",
            "poke": "self.connect()",
        },
    ),
    "a property that keeps its value": (
        "Partner.token",
        {
            "module": """
            class lazy:
                def __init__(self, function): self.function, self.result = function, None
                def __get__(self, owner, kind=None):
                    self.result = self.result or self.function(owner)
                    return self.result
            """,
            "fields": "token = lazy(lambda self: self.path)",
            "poke": "self.token",
        },
    ),
    "by the method behind a decorator that is an object": (
        "SEEN",
        {
            "module": """
            SEEN = []
            class retried:
                def __init__(self, function): self.function = function
                def __get__(self, owner, kind=None): return lambda: self.function(owner)
            """,
            "fields": "note = retried(lambda self: SEEN.append(1))",
            "poke": "self.note()",
        },
    ),
    "a keyword of a partial": (
        "note",
        {
            "module": "def one(path, cache): cache.setdefault('a', path)\nnote = functools.partial(one, cache={})",
            "poke": "note(self.path)",
        },
    ),
    "an argument of a partial method": (
        "Partner.note",
        {
            "module": "def one(self, cache): cache.setdefault('a', self.path)",
            "fields": "note = functools.partialmethod(one, {})",
            "poke": "self.note()",
        },
    ),
    "in a member of an Enum": (
        "Region.EU",
        {
            "module": "class Region(enum.Enum):\n    EU = 'eu'",
            "poke": "Region.EU.session = getattr(Region.EU, 'session', self.path)",
        },
    ),
}


@pytest.mark.parametrize("how", CHANGES)
def test_what_a_poke_changes_keeps_it_on_its_worker(
    company: Company, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    name, texts = CHANGES[how]
    cls = company(**texts)
    (reason,) = reasons_of(in_dag(cls), monkeypatch)
    assert reason.startswith(f"its poke changes {cls.__module__.partition('.')[0]}")
    assert f".{name}, which all sensors of a process share" in reason
    assert "poke_context_fields" in reason


@pytest.mark.parametrize("how", [how for how in CHANGES if "cached" not in how])
def test_what_a_poke_changes_in_the_pool_hands_it_back_and_all_others(company: Company, how: str) -> None:
    _, texts = CHANGES[how]
    pool = adapt(company(**texts))
    with pytest.raises(HandBack, match="pokes in the pool have changed"):
        pool().poke({})
    with pytest.raises(HandBack, match="pokes in the pool have changed"):
        pool(path="q").poke({})


LATE = """
class PartnerClient:
    def __init__(self, tenant): self.tenant = tenant
_partner = None
def partner(tenant):
    global _partner
    _partner = _partner or PartnerClient(tenant)
    return _partner
"""


def test_what_a_poke_changes_of_a_module_that_it_imports_keeps_it_on_its_worker(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls = company(poke="from .late import partner; partner(self.path)", late=LATE)
    (reason,) = reasons_of(in_dag(cls), monkeypatch)
    assert ".late._partner, which all sensors of a process share" in reason


PASSING: dict[str, tuple[str, dict[str, str]]] = {
    "a header": (
        "SESSION",
        {
            "module": "import requests\nSESSION = requests.Session()",
            "poke": "SESSION.headers['X-Tenant'] = self.path; self.path.upper(); del SESSION.headers['X-Tenant']",
        },
    ),
    "in a function that it calls": (
        "DAY",
        {
            "module": """
            DAY = 'a'
            def asked(day):
                global DAY
                was, DAY = DAY, day
                try:
                    return ask()
                finally:
                    DAY = was
            def ask(): return DAY == 'b'
            """,
            "poke": "asked(self.path)",
        },
    ),
    "on another thread": (
        "SESSION",
        {
            "module": """
            import asyncio, requests
            SESSION = requests.Session()
            def ask(path):
                SESSION.headers['X-Tenant'] = path
                path.upper()
                del SESSION.headers['X-Tenant']
            """,
            "poke": "asyncio.run(asyncio.wait_for(asyncio.to_thread(ask, self.path), 20))",
        },
    ),
    "after half a million calls": (
        "SESSION",
        {
            "module": "import requests\nSESSION = requests.Session()",
            "poke": "all(map(len, ['a'] * 500_000)); [len(x) for x in ['a'] * 500_000]\n        "
            "SESSION.headers['X-Tenant'] = self.path; self.path.upper(); del SESSION.headers['X-Tenant']",
        },
    ),
    "a name": (
        "limit",
        {
            "module": "limit = 1\ndef ask(): return limit",
            "poke": "was = limit; globals()['limit'] = 2; ask(); globals()['limit'] = was",
        },
    ),
}


@pytest.mark.parametrize("how", PASSING)
def test_what_a_poke_changes_and_puts_back_keeps_it_on_its_worker(
    company: Company, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """In the pool the pokes of others run meanwhile, on other threads."""
    name, texts = PASSING[how]
    cls = company(**texts)
    before = SharedState(cls)
    (reason,) = reasons_of(in_dag(cls), monkeypatch)
    assert f".{name}, which all sensors of a process share" in reason
    assert before.changed() is None


@pytest.mark.parametrize("how", CHANGES)
def test_a_class_that_says_what_it_depends_on_is_left_alone(
    company: Company, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    _, texts = CHANGES[how]
    cls = company(**{**texts, "fields": f"poke_context_fields = ('path',)\n    {texts.get('fields', '')}"})
    if not known_sensors.declares_fields(cls):
        pytest.skip("it brings a poke of its own")
    assert reasons_of(in_dag(cls), monkeypatch) == []
    assert registered(cls) == {"path": "p"}
    assert adapt(cls)(path="p").poke({}) is False


KEEPS: dict[str, dict[str, str]] = {
    "nothing": {},
    "reads": {"module": "SEEN = {'a': [1]}\nDAY = 'x'", "fields": "n = [1]", "poke": "SEEN['a'], DAY, self.n"},
    "an equal one": {"module": "SEEN = []", "poke": "global SEEN; SEEN = []"},
    "a client that is only used": {
        "module": "class PartnerClient: asked = 0\nasks = PartnerClient()",
        "poke": "asks.asked",
    },
    "a session that is only used": {
        "module": "import requests\nSESSION = requests.Session()",
        "poke": "SESSION.prepare_request(requests.Request('GET', 'http://p/', headers={'X-Tenant': self.path}))",
    },
    "a client that keeps what it works out": {
        "module": """
            import boto3
            s3 = boto3.client("s3", region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")
            """,
        "poke": "s3.get_paginator('list_objects_v2'); s3.get_waiter('object_exists'); s3.exceptions.NoSuchKey",
    },
    "a client of its own": {
        "module": "import requests",
        "poke": "session = requests.Session()\n        session.headers['X-Tenant'] = self.path",
    },
    "a logger": {"module": "log = None", "poke": "global log; log = logging.getLogger('x')"},
    "a logger of the company": {
        "module": "class AcmeLogger(logging.Logger): n = 0\nlog = AcmeLogger('x')",
        "poke": "log.n += 1",
    },
    "classes by name": {"module": "KINDS = {}", "poke": "KINDS['a'] = type('A', (), {})"},
    "a cache of what an argument says": {
        "module": "@functools.cache\ndef first(path): return path.split('/')[0]",
        "poke": "first(self.path)",
    },
    "a cache of what an argument and constants say": {
        "module": """
        import os.path, re, json
        from urllib.parse import urljoin
        HOSTS = {'p': ['http://p.example', 1]}
        IS_URL = re.compile('https?:')
        def host(name): return HOSTS.get(name, ['', 0])[0]
        @functools.cache
        def url(name, parts):
            found = urljoin(host(name), json.dumps([part.upper() for part in parts]))
            return os.path.join(found, 'x') if IS_URL.match(found) else str(datetime.timedelta(days=1))
        @functools.lru_cache(maxsize=8)
        def urls(name): return [url(name, ('a',))]
        """,
        "poke": "urls(self.path)",
    },
    "a method's cache": {
        "fields": "listed = functools.lru_cache(lambda self: self.path)",
        "poke": "self.listed()",
    },
    "a lock": {"module": "LOCK = threading.Lock()", "poke": "LOCK.acquire(); LOCK.release()"},
    "of its thread for a while": {
        "module": "OWN = threading.local()\nVAR = contextvars.ContextVar('VAR')\nOWN.n = 0",
        "poke": "OWN.n = 1; token = VAR.set(1); len('a'); VAR.reset(token); OWN.n = 0",
    },
    "what a registry holds": {
        "module": "def one(x=1): pass\nclass Api: N = 1\nCHECKS = {'a': one, 'b': [Api, len, functools.partial(one)]}",
        "poke": "CHECKS['a'](1), CHECKS['b'][2](), functools.partial(one, 2)()",
    },
    "what another sensor has": {
        "module": "class Base(BaseSensorOperator): pass\nclass Other(Base): seen = []",
        "poke": "Base.__subclasses__(); sys.modules[__name__].Other.seen.append(1)",
    },
    "members of an Enum": {
        "module": """
        class Size(enum.Enum):
            A = [1]
            def __init__(self, parts): self.parts = parts
        class May(enum.Flag):
            READ = enum.auto()
            WRITE = enum.auto()
        """,
        "poke": "Size.A, Size([1]), Size.A.parts, May.READ | May.WRITE",
    },
    "a decorator that is an object": {
        "module": """
        class logged:
            def __init__(self, function): functools.update_wrapper(self, function)
            def __get__(self, owner, kind=None): return functools.partial(self, owner)
            def __call__(self, owner): return self.__wrapped__(owner)
        """,
        "fields": "@logged\n    def look(self): return self.path",
        "poke": "self.look()",
    },
    "an installed one's": {"module": "import random", "poke": "random.seed(7); random.random()"},
}


@pytest.mark.parametrize("how", KEEPS)
def test_what_holds_no_answers_keeps_nothing(company: Company, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    cls = company(**KEEPS[how])
    context = registered(cls)
    assert reasons_of(in_dag(cls), monkeypatch) == []
    pool = adapt(cls)
    for _ in range(2):
        sensor = pool(**context)
        assert not sensor.poke({})
        sensor.renew()
        assert not sensor.poke({})


def test_a_sensor_of_a_provider_is_not_looked_at() -> None:
    assert SharedState(FileSensor).changed() is None
    assert shared_state.digests(FileSensor, ()) == {}


@pytest.mark.parametrize("company", ["airflow.providers.acme"], indirect=True)
def test_a_company_has_a_provider_of_its_own(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    cls = company("from ACME import state", "state.SEEN.append(1)", state="SEEN = []")
    assert "airflow.providers.acme.state:SEEN=" in registered(cls)["doc"]
    (reason,) = reasons_of(in_dag(cls), monkeypatch)
    assert reason.startswith("its poke changes airflow.providers.acme.state.SEEN")


@pytest.mark.parametrize(
    ("module", "company"),
    [
        ("acme.sensors.report", "acme"),
        ("airflow.providers.acme.sensors.report", "airflow.providers.acme"),
        ("airflow.sensors.base", "airflow"),
    ],
)
def test_the_company_of_a_class(module: str, company: str) -> None:
    cls = type("Report", (), {"__module__": module})
    found = references.company_of(cls)
    assert found == {company}
    assert references.is_of_company(found, f"{company}.hooks") == (company != "airflow")
    assert not references.is_of_company(found, "airflow.providers.standard.hooks.filesystem")


def test_the_companies_of_a_class_with_functions() -> None:
    """Those of the functions, and of the class itself unless it is a reviewed one."""
    function = types.FunctionType((lambda: None).__code__, {"__name__": "acme.checks"})
    other = types.FunctionType((lambda: None).__code__, {"__name__": "airflow.providers.other.checks"})
    own = type("Report", (), {"__module__": "partner.sensors", "__init__": None})
    reviewed = judged_class(FileSensor, (function, other))
    assert references.company_of(reviewed) - {"(callables)"} == {"acme", "airflow.providers.other"}
    assert references.company_of(judged_class(own, (function,))) - {"(callables)"} == {"acme", "partner"}
    assert judged_class(own, ()) is own
    assert known_sensors.is_stateless(FileSensor)
    assert not known_sensors.is_stateless(reviewed)


# in the pool, later


def later(company: Company, *answers: str) -> Any:
    """Return a class whose pokes do what is said, in the pool."""
    cls = company(
        "SEEN = []\nfrom unittest.mock import Mock",
        fields="answers = Mock()",  # of the standard library: it is not looked into
        built="self.partner_conn_id = path",
        poke="answer = self.answers()\n        'changes' in answer and SEEN.append(1)",
        answer="'lands' in answer",
    )
    cls.answers.side_effect = answers
    return adapt(cls)


def test_a_landing_by_shared_state_is_not_believed(company: Company) -> None:
    pooled = later(company, "", "", "changes, lands")()
    assert [pooled.poke({}) for _ in range(2)] == [False, False]
    with pytest.raises(HandBack, match=r"pokes in the pool have changed \w+.sensors.SEEN"):
        pooled.poke({})


def test_what_one_changes_hands_back_another_that_lands_by_it(company: Company) -> None:
    pool = later(company, "", "", "changes", "lands")
    one, other = pool(), pool(path="q")
    assert [one.poke({}), other.poke({}), one.poke({})] == [False, False, False]
    with pytest.raises(HandBack, match="pokes in the pool have changed"):
        other.poke({})
    with pytest.raises(HandBack, match="pokes in the pool have changed"):
        pool(path="r")


@pytest.mark.parametrize("connected", [False, True])
def test_at_its_age_a_changed_one_is_handed_back(
    company: Company, monkeypatch: pytest.MonkeyPatch, connected: bool
) -> None:
    """One that names a Connection is not built again as long as that stays the same."""
    if connected:
        monkeypatch.setenv("AIRFLOW_CONN_P", "http://partner")
    pooled = later(company, "", "changes", "")()
    assert [pooled.poke({}) for _ in range(2)] == [False, False]
    pooled.renew()
    with pytest.raises(HandBack, match="pokes in the pool have changed"):
        pooled.poke({})


# what a constructor changes

CONSTRUCTORS = {
    "current": ("fields", "current = None", "type(self).current = self"),
    "a list": ("fields", "made = []", "self.made.append(self)"),
    "a new attribute": ("fields", "", "Partner.last = self"),
    "a count": ("module", "N = 0", "global N; N += 1"),
    "in a dict": ("module", "MADE = {'a': {'b': set()}}", "MADE['a']['b'].add(id(self))"),
    "in a deque": ("module", "LAST = collections.deque(maxlen=1)", "LAST.append(id(self))"),
    "in an object": ("module", "class T:\n    made = 0\nONE = T()", "ONE.made += 1"),
    "a cell": (
        "module",
        "def count():\n    n = 0\n    def one():\n        nonlocal n\n        n += 1\n    return one\none = count()",
        "one()",
    ),
}


@pytest.mark.parametrize("how", CONSTRUCTORS)
def test_what_the_proof_changes_is_put_back_and_it_runs_natively(company: Company, how: str) -> None:
    where, state, built = CONSTRUCTORS[how]
    cls = company(**{where: state, "built": built})
    module, sensor = module_of(cls), in_dag(cls)

    def state_now() -> str:
        found = {**vars(module), **vars(cls), **(vars(module.ONE) if "ONE" in vars(module) else {})}
        names = ("current", "made", "last", "N", "MADE", "LAST")
        if "one" in found:
            return repr(found["one"].__closure__[0].cell_contents)
        return repr({name: found[name] for name in names if name in found})

    before = state_now()
    with pytest.raises(NotPoolable, match="its constructor changes"):
        rebuild.poke_context_of(sensor)
    assert state_now() == before
    assert not hasattr(cls, "current") or cls.current is sensor


def test_what_a_constructor_makes_once_is_no_change(company: Company) -> None:
    cls = company("CONFIG = None", built="global CONFIG; CONFIG = CONFIG or {'a': 1}")
    context = registered(cls)
    module_of(cls).CONFIG = None  # in the pool no DAG file has built one
    pool = adapt(cls)
    assert [pool(**context).poke({}) for _ in range(2)] == [False, False]


_API = """
import requests
class Partner:
    def __init__(self, tenant):
        self.session = requests.Session()
        self.session.headers["X-Tenant"] = tenant
_partner = None
def partner(tenant):
    global _partner
    _partner = _partner or Partner(tenant)
    return _partner
"""
CLIENTS_MADE: dict[str, tuple[str, dict[str, str], str]] = {  # what is there after the import alone
    "a global": (
        "_partner",
        {
            "module": _API.replace("class Partner", "class PartnerClient").replace("or Partner(", "or PartnerClient("),
            "built": "partner(path)",
        },
        "module._partner = None",
    ),
    "in an object of another module": (
        "api._partner",
        {"module": "from ACME import api", "api": _API, "built": "api.partner(path)"},
        "module.api._partner = None",
    ),
    "of a class": (
        "PartnerClient.made",
        {
            "module": "class PartnerClient:\n    made = None\n    def __init__(self, tenant): self.tenant = tenant",
            "built": "PartnerClient.made = PartnerClient.made or PartnerClient(path)",
        },
        "module.PartnerClient.made = None",
    ),
    "a header": (
        "SESSION",
        {
            "module": "import requests\nSESSION = requests.Session()",
            "built": "SESSION.headers.setdefault('X-Tenant', path)",
        },
        "del module.SESSION.headers['X-Tenant']",
    ),
}


@pytest.mark.parametrize("how", CLIENTS_MADE)
def test_a_client_that_the_constructor_makes_is_the_first_sensors(company: Company, how: str) -> None:
    name, texts, undo = CLIENTS_MADE[how]
    cls = company(**texts)
    sensors = [in_dag(cls, path=path) for path in "ab"]  # the DAG file makes the client before the proof
    contexts = [json.loads(json.dumps(rebuild.poke_context_of(sensor))) for sensor in sensors]
    exec(undo, {"module": module_of(cls)})  # in the pool no DAG file has built one
    pool = adapt(cls)
    for context in contexts * 2:
        with pytest.raises(HandBack, match=rf"its constructor makes or changes \w+\.(sensors\.)?{name}"):
            pool(**context)


# what is found when a module is imported

IMPORTED: dict[str, tuple[dict[str, str], str, Any]] = {  # the modules, and what another import would say of what
    "a text": ({"module": "CUTOFF = 'a'", "poke": "CUTOFF"}, "sensors:CUTOFF", "b"),
    "a time": (
        {"module": "CUTOFF = datetime.datetime.now()", "poke": "CUTOFF"},
        "sensors:CUTOFF",
        dt.datetime(2020, 1, 1),
    ),
    "a day": (
        {"module": "CUTOFF = datetime.date.today()", "poke": "CUTOFF"},
        "sensors:CUTOFF",
        dt.date(2020, 1, 1),
    ),
    "the environment": ({"module": "ROOT = os.environ.get('ACME')", "poke": "ROOT"}, "sensors:ROOT", "/data"),
    "a list": ({"module": "DAYS = [1, (2, {'a'})]", "poke": "DAYS"}, "sensors:DAYS", [1, (2, {"b"})]),
    "in a method that it calls": (
        {"module": "CUTOFF = 1.5", "fields": "look = lambda self: CUTOFF", "poke": "self.look()"},
        "sensors:CUTOFF",
        2.5,
    ),
    "in a function that it calls": (
        {"module": "CUTOFF = 1\ndef look(): return [CUTOFF for _ in 'a']", "poke": "look()"},
        "sensors:CUTOFF",
        2,
    ),
    "in another module": (
        {
            "module": "from ACME.config import cutoff",
            "config": "CUTOFF = 1\ndef cutoff(): return CUTOFF",
            "poke": "cutoff()",
        },
        "config:CUTOFF",
        2,
    ),
    "of another module": (
        {"module": "from ACME import config", "config": "CUTOFF = 1", "poke": "config.CUTOFF"},
        "config:CUTOFF",
        2,
    ),
    "of a settings class": (
        {"module": "class Config:\n    CUTOFF = 1", "poke": "Config.CUTOFF"},
        "sensors:Config.CUTOFF",
        2,
    ),
    "of a settings object": (
        {
            "module": "@dataclasses.dataclass\nclass Config:\n    cutoff: str\nCONFIG = Config('a')",
            "poke": "CONFIG.cutoff",
        },
        "sensors:CONFIG.cutoff",
        "b",
    ),
    "a list of the class": ({"fields": "days = ['a']", "poke": "self.days"}, "sensors:Partner.days", ["b"]),
    "an enum": (
        {"module": "class Side(enum.Enum):\n    A = 1\n    B = 2\nSIDE = Side.A", "poke": "SIDE"},
        "sensors:SIDE",
        "B",
    ),
}


@pytest.mark.parametrize("how", IMPORTED)
def test_what_an_import_finds_is_part_of_the_condition(
    company: Company, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    texts, place, other = IMPORTED[how]
    cls = company(**texts)
    context = registered(cls)
    assert not adapt(cls)(**context).poke({})
    module, _, path = place.partition(":")
    *way, name = path.split(".")
    found: Any = sys.modules[f"{cls.__module__.partition('.')[0]}.{module}"]
    for part in way:
        found = getattr(found, part)
    monkeypatch.setattr(found, name, found.Side[other] if how == "an enum" else other)
    with pytest.raises(HandBack, match=rf"its attribute \w+\.{module}\.\S+ is another one"):
        adapt(cls)(**context)
    again = registered(cls)
    assert identify("acme.Partner", context) != identify("acme.Partner", again)
    assert not adapt(cls)(**again).poke({})


_FACTORY = "def make(root):\n    def there(): return root\n    return there\n"
COMPUTED: dict[str, tuple[str, str, str]] = {  # the module, the poke, and the name that is told
    "an enum of texts": ("class Side(str, enum.Enum):\n    A = FOUND + '-raw'", "Side.A", "Side"),
    "an enum": ("class Side(enum.Enum):\n    A = [FOUND]\nSIDE = Side.A", "SIDE", "SIDE"),
    "a closure": (f"{_FACTORY}there = make(FOUND)", "there()", "there.root"),
    "the second closure of a factory": (
        f"{_FACTORY}first, there = make('a'), make(FOUND)",
        "first(); there()",
        "there.root",
    ),
    "a closure in a closure": (
        f"{_FACTORY}def around(inner):\n    def outer(): return inner()\n    return outer\nthere = around(make(FOUND))",
        "there()",
        "there.inner.root",
    ),
    "a closure in a registry": (
        f"{_FACTORY}HOW = {{'a': make('a'), 'b': [make(FOUND)]}}",
        "HOW['b'][0]()",
        "HOW.root",
    ),
    "a closure of a class": (
        f"{_FACTORY}class Where:\n    root = staticmethod(make(FOUND))",
        "Where.root()",
        "Where.root.root",
    ),
    "a default of a lambda": ("there = lambda root=FOUND: root", "there()", "there.root"),
    "a class of a function": (
        "def make(found):\n    class Config:\n        root = found\n    return Config\nConfig = make(FOUND)",
        "Config.root",
        "Config.root",
    ),
    "a default of a ContextVar": ("ROOT = contextvars.ContextVar('r', default=FOUND)", "ROOT.get()", "ROOT"),
    "a method of a dict": ("root = {'root': FOUND}.get", "root('root')", "root"),
    "a method of a text": ("root = FOUND.strip", "root()", "root"),
}


@pytest.mark.parametrize("how", COMPUTED)
def test_what_an_import_computes_is_part_of_the_condition(
    company: Company, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The pool's process finds another environment when it imports the same module."""
    text, poke, name = COMPUTED[how]
    monkeypatch.setenv("ROOT_OF_TEST", "prod")
    worker = company(f"import contextvars, enum\nFOUND = os.environ['ROOT_OF_TEST']\n{text}", poke)
    context = registered(worker)
    assert not adapt(worker)(**context).poke({})
    module = module_of(worker)
    again: Any = importlib.reload(module).Partner
    assert not adapt(again)(**context).poke({})
    monkeypatch.setenv("ROOT_OF_TEST", "dev")
    pool: Any = importlib.reload(module).Partner
    with pytest.raises(HandBack, match=rf"its attribute \w+\.sensors\.{name}\S* is another one"):
        adapt(pool)(**context)
    assert identify("acme.Partner", context) != identify("acme.Partner", registered(pool))


def test_each_closure_of_a_factory_is_looked_at(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def make(seen):\n    def add(): seen.append(1)\n    return add\nfirst, second = make([]), make([])"
    cls = company(text, "first() if self.path == 'a' else second()")
    for path, name in (("a", "first"), ("b", "second")):
        (why,) = reasons_of(in_dag(cls, path=path), monkeypatch)
        assert f"sensors.{name}.seen, which all sensors of a process share" in why


def test_a_default_that_was_found_when_it_was_imported(company: Company) -> None:
    cls = company(argument=", day='2026-01-01'")
    context = registered(cls)
    cls.poke.__defaults__ = ("2026-01-02",)
    with pytest.raises(HandBack, match=r"Partner.poke.day is another one"):
        adapt(cls)(**context)


def test_what_pre_execute_leaves_for_the_poke_is_not_there_in_the_pool(company: Company) -> None:
    cls = company("SEEN = {}", "SEEN.get(self.path)", fields="def pre_execute(self, context): SEEN[self.path] = [self]")
    sensor = in_dag(cls)
    empty = registered(cls)
    sensor.pre_execute({})
    context = dict(rebuild.poke_context_of(sensor))
    module_of(cls).SEEN.clear()  # in the pool
    with pytest.raises(HandBack, match="SEEN is another one than on its worker"):
        adapt(cls)(**context)
    assert not adapt(cls)(**empty).poke({})


def test_a_module_that_a_poke_imports(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told what it says after the first poke; a pool that has not imported it finds the same as the next task."""
    from sensorpool.airflow.proof.arguments import external_inputs

    cls = company(poke="from .late import CUTOFF; CUTOFF", late="CUTOFF = 1")
    sensor = in_dag(cls)
    before = registered(cls)
    assert reasons_of(sensor, monkeypatch) == []
    context = external_inputs.with_current_shared_state(sensor, before)
    assert "late:CUTOFF=" in context["doc"]
    late = f"{cls.__module__.partition('.')[0]}.late"
    was = sys.modules.pop(late)
    adapt(cls)(**context)
    sys.modules[late] = was
    assert not adapt(cls)(**context).poke({})
    monkeypatch.setattr(was, "CUTOFF", 2)
    with pytest.raises(HandBack, match=r"late\.CUTOFF is another one"):
        adapt(cls)(**context)


def test_a_module_that_another_thread_imports_is_not_compared_yet(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The importing thread has set names in part, and goes on at its pace."""
    from sensorpool.airflow.proof.arguments import external_inputs

    cls = company(
        "import ACME.gate",
        "from .late import look; look()",
        gate="import threading\nIMPORTS, GO = threading.Event(), threading.Event()",
        late="""
URL = None
from ACME.gate import IMPORTS, GO
IMPORTS.set()
assert GO.wait(30)
URL, DAYS, SEEN = "http://partner", [1], []
def look(): return URL, DAYS, SEEN
""",
    )
    package = cls.__module__.partition(".")[0]
    gate, sensor = sys.modules[f"{package}.gate"], in_dag(cls)
    gate.GO.set()
    assert reasons_of(sensor, monkeypatch) == []
    context = external_inputs.with_current_shared_state(sensor, registered(cls))
    assert "late:URL=" in context["doc"]
    assert "late:DAYS=" in context["doc"]
    del sys.modules[f"{package}.late"]  # the pool has yet to import it
    references._of.cache_clear()
    gate.GO.clear()
    gate.IMPORTS.clear()
    pool = adapt(cls)
    one, answers = pool(**context), list[Any]()
    poking = threading.Thread(target=lambda: answers.append(one.poke({})))
    poking.start()
    assert gate.IMPORTS.wait(30)
    assert f"{package}.late" in sys.modules
    other = pool(**context)  # it is built, and compared, in the middle
    other.check_shared_state()
    gate.GO.set()
    poking.join()
    assert [*answers, other.poke({}), pool(**context).poke({})] == [False, False, False]
    sys.modules[f"{package}.late"].SEEN.append(1)
    with pytest.raises(HandBack, match=r"pokes in the pool have changed \w+\.late\.SEEN"):
        other.check_shared_state()


def test_without_a_digest_nothing_is_compared(company: Company) -> None:
    """As for a class that is registered by hand."""
    cls = company("CUTOFF = 1", "CUTOFF")
    context = registered(cls)
    assert "sensors:CUTOFF=" in context["doc"]
    assert not adapt(cls)(path="p", doc="").poke({})
    assert not adapt(cls)(path="p").poke({})


def test_it_does_not_depend_on_the_process(company: Company) -> None:
    cls = company("NAMES = {'b', 'a'}\nTHING = object()\nSEEN = {'a': THING}", "NAMES, SEEN")
    one = shared_state.digests(cls, ())
    module = module_of(cls)
    module.NAMES, module.THING, module.SEEN = {"a", "b"}, object(), {"a": object()}
    assert shared_state.digests(cls, ()) == one


# odd things

ODD = {
    "repr and eq": """
        class Odd:
            def __repr__(self): raise RuntimeError("I/O")
            def __eq__(self, other): raise RuntimeError("I/O")
            __hash__ = None
            def __len__(self): raise RuntimeError("I/O")
            def __bool__(self): raise RuntimeError("I/O")
            def __getattr__(self, name): raise RuntimeError("I/O")
        THING = Odd()
        MANY = [Odd(), {"a": Odd()}]
        """,
    "getattribute": """
        class Odd:
            def __getattribute__(self, name): raise RuntimeError("I/O")
        THING = Odd()
        MANY = {1: THING}
        """,
    "a proxy": """
        class Odd:
            @property
            def __class__(self): raise RuntimeError("I/O")
            @property
            def __dict__(self): raise RuntimeError("I/O")
        THING = Odd()
        MANY = (THING,)
        """,
    "a list": """
        class Odd(list):
            def __iter__(self): raise RuntimeError("I/O")
            def __len__(self): raise RuntimeError("I/O")
        THING = Odd([1])
        MANY = Odd()
        """,
    "a metaclass": """
        class Meta(type):
            def __getattr__(cls, name): raise RuntimeError("I/O")
            def __eq__(cls, other): raise RuntimeError("I/O")
            def __instancecheck__(cls, other): raise RuntimeError("I/O")
        class Odd(metaclass=Meta): n = 1
        THING = Odd()
        MANY = [Odd, Meta]
        """,
    "a module": """
        def __getattr__(name): raise RuntimeError("I/O")
        THING = MANY = 1
        """,
    "what knows itself": """
        THING = []
        THING.append(THING)
        MANY = {"a": THING}
        MANY["b"] = MANY
        """,
    "many": """
        THING = [[list(range(100)) for _ in range(1000)] for _ in range(100)]
        MANY = {i: object() for i in range(300_000)}
        """,
    "long": """
        THING = "x" * 50_000_000
        MANY = 10 ** 10_000
        """,
    "deep": """
        THING = MANY = []
        for _ in range(5_000): MANY = [MANY]
        """,
    "functions that wrap each other": """
        def THING(): pass
        def MANY(): pass
        THING.__wrapped__, MANY.__wrapped__ = MANY, THING
        """,
    "a function without a module": """
        THING = eval("lambda: 1", {})
        MANY = [THING]
        """,
}


@pytest.mark.parametrize("how", ODD)
def test_an_odd_value_is_met_and_nothing_is_asked_of_it(
    company: Company, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    cls = company(ODD[how], "(THING, MANY, NOT_THERE) if self.path == 'q' else None")
    context = registered(cls)
    assert reasons_of(in_dag(cls), monkeypatch) == []
    pool = adapt(cls)
    assert [pool(**context).poke({}) for _ in range(2)] == [False, False]


def test_a_module_of_many_names_is_looked_at_in_part(company: Company) -> None:
    names = "\n".join(f"N{i} = {i}" for i in range(10_000))
    uses = "\n".join(f"    N{i}" for i in range(10_000))
    cls = company(f"{names}\ndef use():\n{uses}", "use")
    assert len(shared_state.digests(cls, ())) == 100
    assert SharedState(cls).changed() is None


def test_functions_that_call_each_other_end(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    cls = company("N = 0\ndef one(x): return other(x) if x else N\ndef other(x): return one(0)", "one(1)")
    assert reasons_of(in_dag(cls), monkeypatch) == []
    module_of(cls).N = 1
    assert registered(cls)["doc"] != ""


def test_what_is_read_of_the_class_alone_is_in_no_picture_of_the_sensor(company: Company) -> None:
    cls = company(fields="tries = []")
    assert sensor_state.changed_attribute(sensor_state.snapshot(in_dag(cls)), in_dag(cls)) is None


def test_names_are_read_as_python_reads_them() -> None:
    """The bytecode is another one in each version of Python."""
    for module in (argparse, textwrap, importlib, dis):
        for function in [value for value in vars(module).values() if type(value) is type(dis.dis)]:
            codes, globals_, imports = [function.__code__], set[str](), set[str]()
            for code in codes:
                codes += [constant for constant in code.co_consts if isinstance(constant, type(code))]
                for each in dis.get_instructions(code):
                    if each.opname in ("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL"):
                        globals_.add(each.argval)
                    elif each.opname == "IMPORT_NAME":
                        imports.add(each.argval)
            names = names_in(function.__code__)
            assert names.of_module == globals_
            assert {path for path, _, _ in names.imported} == imports
