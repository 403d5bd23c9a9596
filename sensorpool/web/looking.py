"""The pages that one looks at: the overview, conditions, waiters, tasks and runs, quarantine, recorded actions."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BeforeValidator
from starlette.responses import HTMLResponse

from sensorpool.admin import actions, conditions, explain, instances, overview, quarantine
from sensorpool.client.pool import Pool
from sensorpool.errors import Unknown
from sensorpool.model.states import Outcome, State
from sensorpool.store.conditions import Order, Wanted
from sensorpool.store.listing import Selection
from sensorpool.web.access import Access, Denied, Reader
from sensorpool.web.rendering import Pages
from sensorpool.web.surroundings import Surroundings

ON_A_PAGE = 50
_LAST = 2**31
_EMPTY_IS_NONE = BeforeValidator(lambda given: given or None)  # a form sends its empty fields too
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
        return pages.page(request, reader, "overview", figures=figures, **overview.overview(pool, reader.seen))

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
        dag_ids = reader.seen if not dag else [dag] if reader.sees(dag) else []
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
        request: Request, reader: AReader, group_id: int, after: Annotated[int, Query(ge=0)] = 0
    ) -> HTMLResponse:
        found = visible_condition(pool, reader, group_id, after)
        may_poke = reader.acts and conditions.is_waited_for(pool, group_id, reader.changed)
        return pages.page(request, reader, "condition", found=found, may_poke=may_poke)

    @router.get("/instances/{instance_id}")
    def of_instance(request: Request, reader: AReader, instance_id: int) -> HTMLResponse:
        return _waiter(request, reader, visible_instance(pool, reader, instance_id), [])

    @router.get("/task")
    def of_task(
        request: Request,
        reader: AReader,
        dag_id: Annotated[str, Query(max_length=250)],
        run_id: Annotated[str, Query(max_length=250)],
        task_id: Annotated[str, Query(max_length=250)],
        map_index: str = "-1",
    ) -> HTMLResponse:
        _must_see(reader, dag_id)
        rows = instances.list_instances(pool, Selection(dag_id=dag_id, run_id=run_id, task_id=task_id), _TRIES)
        index = int(map_index) if map_index.removeprefix("-").isdecimal() and len(map_index) < 10 else -1
        tries = sorted((row for row in rows if row["map_index"] == index), key=lambda row: -row["try_number"])
        if not tries:
            return pages.page(request, reader, "not_pooled", dag_id=dag_id, task_id=task_id, run_id=run_id)
        return _waiter(request, reader, instances.show(pool, tries[0]["id"]), tries)

    @router.get("/run")
    def of_run(
        request: Request,
        reader: AReader,
        dag_id: Annotated[str, Query(max_length=250)],
        run_id: Annotated[str, Query(max_length=250)],
    ) -> HTMLResponse:
        _must_see(reader, dag_id)
        rows = instances.list_instances(pool, Selection(dag_id=dag_id, run_id=run_id), _OF_RUN)
        rows.sort(key=lambda row: (row["state"] != State.SENSING, row["task_id"], row["map_index"], -row["try_number"]))
        return pages.page(request, reader, "run", rows=rows, dag_id=dag_id, run_id=run_id, most=_OF_RUN)

    @router.get("/quarantine")
    def in_quarantine(request: Request, reader: AReader) -> HTMLResponse:
        return pages.page(request, reader, "quarantine", rows=_of_the_pool(reader, quarantine.quarantined(pool)))

    @router.get("/actions")
    def of_actions(
        request: Request, reader: AReader, before: Annotated[int | None, Query(ge=1, lt=2**63)] = None
    ) -> HTMLResponse:
        rows = _of_the_pool(reader, actions.recorded(pool, before, ON_A_PAGE))
        return pages.page(request, reader, "actions", rows=rows, size=ON_A_PAGE)

    def _waiter(request: Request, reader: Reader, shown: dict[str, Any], tries: list[dict[str, Any]]) -> HTMLResponse:
        shown["shares_with"] = [each for each in shown["shares_with"] if reader.sees(each["dag_id"])]
        said = explain.sentences(pool, shown)
        further = surroundings.sentences(shown, reader)
        return pages.page(request, reader, "instance", shown=shown, said=said, further=further, tries=tries)

    return router


def visible_instance(pool: Pool, reader: Reader, instance_id: int) -> dict[str, Any]:
    """Return what `instances.show` returns.

    :raises Unknown: when there is no such instance, or its reader may not see it: that must not be told apart.
    """
    shown = instances.show(pool, instance_id)
    if not reader.sees(shown["dag_id"]):
        raise Unknown(f"there is no instance {instance_id}: it was never registered, or has been pruned")
    return shown


def visible_condition(pool: Pool, reader: Reader, group_id: int, after: int = 0) -> dict[str, Any]:
    """Return what `conditions.condition` returns.

    :raises Unknown: when there is none, or no waiter of it may be named to its reader.
    """
    conditions.check_seen(pool, group_id, reader.seen)
    return conditions.condition(pool, group_id, reader.seen, after)


def _must_see(reader: Reader, dag_id: str) -> None:
    if not reader.sees(dag_id):
        raise Denied("you may not see the tasks of this DAG")


def _of_the_pool(reader: Reader, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows that name waiters and conditions of any DAG.

    :raises Denied: when the reader may not see all DAGs.
    """
    if reader.seen is not None:
        raise Denied("this page is for who may see all DAGs")
    return rows
