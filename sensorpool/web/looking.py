"""The pages that one looks at: the overview, conditions, waiters, tasks and runs, quarantine, recorded actions."""

from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BeforeValidator
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse

from sensorpool.admin import actions, conditions, explain, findings, instances
from sensorpool.admin.status import overview
from sensorpool.client.pool import Pool
from sensorpool.errors import Unknown
from sensorpool.model.states import Outcome, State
from sensorpool.store.conditions import Order, Wanted
from sensorpool.store.inspecting import Selection
from sensorpool.web.access import Access, Denied, Reader, Surroundings
from sensorpool.web.rendering import Pages

ON_A_PAGE = 50
_LAST = 2**31
_EMPTY_IS_NONE = BeforeValidator(lambda given: given or None)  # a form sends its empty fields too
_LONGEST = 250  # characters of a name
_DIGITS = 10  # of a map index
_TRIES = 20  # of a task that are listed
_OF_RUN = 500  # instances of a run that are listed


def routes(pool: Pool, access: Access, pages: Pages, surroundings: Surroundings) -> APIRouter:
    """Return the routes of the pages."""
    router = APIRouter()
    AReader = Annotated[Reader, Depends(access.reader)]

    @router.get("/")
    def at_a_glance(request: Request, reader: AReader) -> HTMLResponse:
        if not reader.watches:
            raise Denied("you may see what waits for the tasks that you may see, and not the pool as a whole")
        figures = surroundings.figures()
        return pages.page(request, reader, "overview", figures=figures, **overview(pool, reader.seen))

    @router.get("/conditions")
    def of_conditions(
        request: Request,
        reader: AReader,
        sort: Order = Order.WAITERS,
        op_classpath: Annotated[str, Query(alias="class", max_length=500)] = "",
        backend: Annotated[str, Query(max_length=250)] = "",
        dag: Annotated[str, Query(max_length=250)] = "",
        outcome: Annotated[Outcome | None, _EMPTY_IS_NONE] = None,
        late: Annotated[bool | None, _EMPTY_IS_NONE] = None,
        first: Annotated[int, Query(ge=0, le=_LAST)] = 0,
    ) -> HTMLResponse:
        dag_ids = None if not dag else [dag] if reader.sees(dag) else []
        wanted = Wanted(op_classpath=op_classpath or None, backend=backend or None, dag_ids=dag_ids, late=bool(late))
        found = conditions.list_conditions(pool, wanted, sort, first, ON_A_PAGE, outcome=outcome, seen=reader.seen)
        asked = {"sort": sort, "class": op_classpath, "backend": backend, "dag": dag, "outcome": outcome or ""}
        asked |= {"late": "true" if late else ""}
        return pages.page(
            request, reader, "conditions", **found, asked=asked, first=first, size=ON_A_PAGE, orders=list(Order),
            outcomes=list(Outcome),
        )  # fmt: skip

    @router.get("/conditions/{group_id}")
    def of_condition(
        request: Request, reader: AReader, group_id: int, after: Annotated[int, Query(ge=0, lt=2**63)] = 0
    ) -> HTMLResponse:
        found = visible_condition(pool, reader, group_id, after)
        problems = [] if found["unreachable"] else findings.wrong(pool)
        stopped = explain.why_stopped(found["unreachable"], problems, watches=reader.watches)
        may_poke = conditions.is_waited_for(pool, group_id, reader.changed)
        size = conditions.SHOWN_WAITERS
        return pages.page(request, reader, "condition", found=found, stopped=stopped, may_poke=may_poke, page_size=size)

    @router.get("/instances/{instance_id}")
    def of_instance(request: Request, reader: AReader, instance_id: int) -> HTMLResponse:
        return _waiter(request, reader, visible_instance(pool, reader, instance_id), [])

    @router.get("/task")
    def of_task(
        request: Request,
        reader: AReader,
    ) -> HTMLResponse:
        dag_id, run_id, task_id = _named(request, "dag_id", "run_id", "task_id")
        _must_see(reader, dag_id)
        given = request.query_params.get("map_index", "")
        index = int(given) if given.isdecimal() and len(given) < _DIGITS else -1
        selection = Selection(dag_id=dag_id, run_id=run_id, task_id=task_id, map_index=index)
        tries = sorted(instances.list_instances(pool, selection, _TRIES), key=lambda row: -row["try_number"])
        if not tries:
            return pages.page(request, reader, "not_pooled", dag_id=dag_id, task_id=task_id, run_id=run_id)
        shown = instances.show(pool, tries[0]["id"], of_others=_sees_others(reader))
        return _waiter(request, reader, shown, tries)

    @router.get("/run")
    def of_run(
        request: Request,
        reader: AReader,
    ) -> HTMLResponse:
        dag_id, run_id = _named(request, "dag_id", "run_id")
        _must_see(reader, dag_id)
        rows = instances.list_instances(pool, Selection(dag_id=dag_id, run_id=run_id), _OF_RUN)
        rows.sort(key=lambda row: (row["state"] != State.SENSING, row["task_id"], row["map_index"], -row["try_number"]))
        return pages.page(request, reader, "run", rows=rows, dag_id=dag_id, run_id=run_id, most=_OF_RUN)

    @router.get("/quarantine")
    def in_quarantine(request: Request, reader: AReader) -> HTMLResponse:
        return pages.page(request, reader, "quarantine", rows=_of_the_pool(reader, actions.quarantined(pool)))

    @router.get("/actions")
    def of_actions(
        request: Request, reader: AReader, before: Annotated[int | None, Query(ge=1, lt=2**63)] = None
    ) -> HTMLResponse:
        rows = _of_the_pool(reader, actions.recorded(pool, before, ON_A_PAGE))
        return pages.page(request, reader, "actions", rows=rows, size=ON_A_PAGE)

    def _waiter(request: Request, reader: Reader, shown: dict[str, Any], tries: list[dict[str, Any]]) -> HTMLResponse:
        if reader.seen is not None:
            shown["shares_with"] = conditions.others_seen(pool, shown, reader.seen)
        said = explain.sentences(pool, shown, watches=reader.watches)
        further = surroundings.sentences(shown, reader)
        return pages.page(request, reader, "instance", shown=shown, said=said, further=further, tries=tries)

    return router


def visible_instance(pool: Pool, reader: Reader, instance_id: int) -> dict[str, Any]:
    """Return what `instances.show` returns.

    :raises Unknown: when there is no such instance, or its reader may not see it: that must not be told apart.
    """
    if not reader.sees(instances.instance(pool, instance_id)["dag_id"]):  # before more is read: time would tell
        raise Unknown(f"there is no instance {instance_id}: it was never registered, or has been pruned")
    return instances.show(pool, instance_id, of_others=_sees_others(reader))


def _sees_others(reader: Reader) -> bool:
    return reader.seen is None or reader.oversees


def visible_condition(pool: Pool, reader: Reader, group_id: int, after: int = 0) -> dict[str, Any]:
    """Return what `conditions.condition` returns.

    :raises Unknown: when there is none, or no waiter of it may be named to its reader.
    """
    conditions.check_seen(pool, group_id, reader.seen)
    return conditions.condition(pool, group_id, reader.seen, after, all_dates=reader.oversees)


def _named(request: Request, *names: str) -> list[str]:
    """Return values of the address's query. A plus sign is one: Airflow 3.1 does not quote those of run ids.

    :raises HTTPException: when one is missing or too long.
    """
    pairs = (pair.partition("=") for pair in request.scope["query_string"].decode("latin-1").split("&"))
    given = {unquote(name): unquote(value) for name, _, value in pairs}
    for name in names:
        if not 0 < len(given.get(name, "")) <= _LONGEST:
            raise HTTPException(422, f"the address has a wrong value: {name}")
    return [given[name] for name in names]


def _must_see(reader: Reader, dag_id: str) -> None:
    if not reader.sees(dag_id):
        raise Denied("you may not see the tasks of this DAG")


def _of_the_pool(reader: Reader, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows that name waiters and conditions of any DAG.

    :raises Denied: when the reader may not see all DAGs.
    """
    if not reader.oversees:
        raise Denied("this page is for who may see all DAGs")
    return rows
