"""Threat: a class path or arguments planted in a row or a message run code."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import func, insert, select

from harness.scripted import land, pokes
from harness.service import Service, children
from harness.until import until
from sensorpool.errors import ClassRefused, Refused
from sensorpool.model.states import State
from sensorpool.poke.classes import Classes
from sensorpool.publish import wire
from sensorpool.service.app import make_app
from sensorpool.store.schema import outbox
from tests.security.canary import MODULE, Canary
from tests.security.planting import plant, rows
from tests.support.poke_child import ends_of

SCRIPTED = "harness.scripted.ScriptedSensor"
MANY = "harness.scripted.ManyScriptedSensor"
CLASS_PATHS = [
    "os.system",
    "posix.system",
    "subprocess.Popen",
    "builtins.eval",
    "builtins.open",
    f"{MODULE}.Canary",
    f"{MODULE}:Canary",
    f"{MODULE}.Canary.Inner",
    f"{MODULE}.Canary.poke",
    f"{SCRIPTED}.poke",
    f"{SCRIPTED}.poke.__globals__",
    "harness.scripted.act",
    "harness.scripted.os.system",
    "__main__.x",
    "",
    "../../canary_at_import",
    f" {SCRIPTED}\n{MODULE}.Canary",
]
REFUSED = re.compile("ClassRefused|ClassUnavailable")
EXTRA_FIELDS = [
    {"command": "x"},
    {"__class__": "os.system"},
    {"sys_path": ["/tmp"]},
    {"self": 1},
    {"task_id": "x", "on_failure_callback": "os.system"},
]


def contexts(canary: Canary) -> list[str]:
    """Contexts for whatever would take them: a command, a mode to open a file with, a module's name."""
    command = {"command": canary.command, "args": canary.command, "file": str(canary.path), "mode": "w"}
    return [json.dumps(command), json.dumps({"command": canary.command}), json.dumps([canary.command])]


def test_planted_class_paths_are_never_imported(
    make_service: Callable[..., Service], canary: Canary, tmp_path: Path
) -> None:
    """Threat `code execution`: rows."""
    service = make_service(infra_failure_window=3)
    database, folder = service.pool.database, str(tmp_path)
    planted = [
        plant(database, path, context, strikes=strikes)
        for path in CLASS_PATHS
        for context in contexts(canary)
        for strikes in (0, 1)  # those with a strike are poked in the isolated lane
    ]
    listed = [
        plant(database, path, json.dumps({"folder": folder, "name": "extra", **extra}), strikes=strikes)
        for path in (SCRIPTED, MANY)
        for extra in EXTRA_FIELDS
        for strikes in (0, 1)
        if path == SCRIPTED or "folder" in extra
    ]
    garbled = [plant(database, SCRIPTED, text) for text in ("", "garbage", "[]", "null", "7", "[" * 20_000)]
    ours = plant(database, SCRIPTED, json.dumps({"folder": folder, "name": "ours"}))
    apart = plant(database, SCRIPTED, json.dumps({"folder": folder, "name": "apart"}), strikes=1)
    land(folder, "ours")
    land(folder, "apart")
    service.start(**canary.environment)
    states = service.pool.wait([*planted, *listed, *garbled, ours, apart], 60)
    found = rows(database)
    assert {states[one] for one in (*planted, *listed, *garbled)} == {State.FAILED}
    assert all(found[one]["reason"] for one in (*planted, *listed, *garbled))
    assert all(REFUSED.search(found[one]["reason"]) for one in planted)
    assert (states[ours], states[apart]) == (State.SUCCESS, State.SUCCESS)
    assert "extra" not in pokes(folder)
    # the one that had crashed before was poked by no process of the worker: the isolated lane was tried, too
    family = {service.processes[0].pid, *(child.pid for child in children(service.processes[0]))}
    assert not family & {poke.pid for poke in pokes(folder)["apart"]}
    assert canary.is_untouched


def test_the_lane_apart_holds_to_the_allowlist(canary: Canary, tmp_path: Path) -> None:
    """Threat `code execution`: the child process, asked directly, with a path that would find the module."""
    asked = [(path, contexts(canary)[0]) for path in CLASS_PATHS]
    ends = ends_of(asked, enabled=[SCRIPTED], folder=tmp_path, environment=canary.environment)
    assert ends.keys() == set(range(1, len(asked) + 1))
    assert {end["outcome"] for end in ends.values()} == {"fail", "cannot_poke"}, "no class path at all; not listed here"
    assert all(REFUSED.search(end["reason"]) for end in ends.values())
    assert canary.is_untouched


def test_forged_messages_run_nothing(make_service: Callable[..., Service], canary: Canary, tmp_path: Path) -> None:
    """Threat `code execution`: messages, with every part of Celery's that names something to run."""
    service = make_service()
    ours = service.pool.register(SCRIPTED, {"folder": str(tmp_path), "name": "ours"})
    service.start(**canary.environment)
    app = make_app(service.settings)
    evil = {"task": "os.system", "args": [canary.command], "kwargs": {}, "options": {}, "subtask_type": None}

    def send(name: str, *args: object, **more: object) -> None:
        app.send_task(name, args=args, queue=wire.QUEUE, **more)

    for name in ("os.system", f"{MODULE}.Canary", f"{MODULE}:Canary", "celery.accumulate"):
        send(name, canary.command)
    for extra in ({"op_classpath": f"{MODULE}.Canary"}, {"__import__": MODULE}, {"sys_path": [str(tmp_path)]}):
        send(wire.POKE_SHARD, 0, 10_000, kwargs=extra)
    for args in (("os.system", canary.command), (f"{MODULE}.Canary", 1), (0, 10**30), (-5, 3), (None, None), ([], {})):
        send(wire.POKE_SHARD, *args)
    send(wire.RESCUE, f"{MODULE}.Canary", kwargs={"rescuers": [f"{MODULE}.Canary"]})
    send(wire.RESCUE, link=[evil], link_error=[evil])
    send(wire.POKE_SHARD, 0, 2_500, chain=[evil], chord=evil, group_id="x")
    send("celery.starmap", evil, [[canary.command]])
    send("celery.map", evil, [canary.command])
    send("celery.chunks", evil, [[canary.command]], 1)
    send("celery.group", [evil], "x", [])
    send("celery.chord", [evil], evil)
    app.close()
    last = max(poke.at for some in pokes(tmp_path).values() for poke in some) if pokes(tmp_path) else 0.0
    until("two pokes after the attack", lambda: len([p for p in pokes(tmp_path)["ours"] if p.at > last]) > 1)
    until("an empty queue", lambda: not service.pool.leases.store.client.llen("sensorpool:sensorpool"))
    assert service.processes[0].poll() is None
    assert canary.is_untouched
    land(tmp_path, "ours")
    assert service.pool.wait([ours.id], 30) == {ours.id: State.SUCCESS}


@pytest.mark.parametrize("path", CLASS_PATHS)
def test_registration_imports_nothing_that_is_not_listed(path: str, canary: Canary) -> None:
    """Threat `code execution`: where it begins."""
    sys.path.insert(0, str(canary.folder))
    try:
        with pytest.raises(ClassRefused):
            Classes([SCRIPTED]).try_out(path, {})
    finally:
        sys.path.remove(str(canary.folder))
    assert MODULE not in sys.modules
    assert canary.is_untouched


@pytest.mark.parametrize("path", [SCRIPTED, MANY])
@pytest.mark.parametrize("extra", EXTRA_FIELDS, ids=lambda extra: min(extra))
def test_undeclared_fields_are_refused_at_registration(path: str, extra: dict[str, object]) -> None:
    """Threat `code execution`: declared fields only."""
    classes = Classes([SCRIPTED, MANY])
    context = {"folder": "/", "name": "x", **extra}
    if path == MANY:  # it declares no fields: its contexts are its own to read, and nothing is constructed with them
        assert classes.find(path).construct(context) is context
        return
    with pytest.raises(Refused, match="has no argument"):
        classes.try_out(path, context)


WRITTEN_OVER: list[dict[str, object]] = [
    {"execution_context": "garbage"},
    {"execution_context": "[]"},
    {"execution_context": '{"timeout": "x", "poke_interval": [], "max_wait": {}}', "next_deadline": 0},
    {"execution_context": '{"execution_timeout": "soon"}', "timeout_at": 0, "next_deadline": 0},
    {"on_settled": "garbage"},
    {"on_settled": '{"task": ["os.system"], "args": 7, "kwargs": 7, "options": 7}'},
    {"on_settled": '{"task": "os.system", "args": ["x"]}'},
]


def test_rows_that_somebody_wrote_over_stop_no_other(
    make_service: Callable[..., Service], canary: Canary, tmp_path: Path
) -> None:
    """Threat `code execution`: columns that are read later must not stop the settling and publishing of the others."""
    service = make_service(shards=1)
    database, folder = service.pool.database, str(tmp_path)
    planted = [
        plant(
            database, SCRIPTED, json.dumps({"folder": folder, "name": f"p{number}-{script}", "script": script}), **more
        )
        for number, more in enumerate(WRITTEN_OVER)
        for script in ("wait", "raise", "fail")
    ]
    with database.engine.begin() as connection:
        for text in ("garbage", "7", '["x", 1e999]'):
            connection.execute(insert(outbox).values(created_at=0, instance_ids=text))
    other = service.pool.register(SCRIPTED, {"folder": folder, "name": "other"})
    for number in range(len(WRITTEN_OVER)):
        land(folder, f"p{number}-wait")
    land(folder, "other")
    service.start()
    states = service.pool.wait([*planted, other.id], 30)
    assert State.SENSING not in states.values()
    assert states[other.id] is State.SUCCESS

    def left() -> int:
        with database.engine.connect() as connection:
            return int(connection.execute(select(func.count()).select_from(outbox)).scalar_one())

    until("an empty outbox", lambda: left() == 0)
    assert canary.is_untouched
