"""What the forms of the pages do. Each action asks for the permission, refuses a forged request, and is recorded."""

from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request
from starlette.responses import RedirectResponse

from sensorpool.admin import actions, conditions
from sensorpool.client.pool import Pool
from sensorpool.web import forms
from sensorpool.web.access import Access, Denied, Reader
from sensorpool.web.looking import visible_instance
from sensorpool.web.rendering import Pages, kept_query

_SEE_OTHER = 303


def routes(pool: Pool, access: Access, pages: Pages) -> APIRouter:  # noqa: ARG001  # as of `looking`
    """Return the routes of the actions."""
    router = APIRouter()

    def acting(
        request: Request,
        reader: Annotated[Reader, Depends(access.reader)],
        form_token: Annotated[str, Form(alias=forms.FIELD, max_length=100)] = "",
    ) -> Reader:
        forms.check(request, form_token)
        return reader

    Actor = Annotated[Reader, Depends(acting)]

    @router.post("/conditions/{group_id}/poke")
    def poke_now(request: Request, reader: Actor, group_id: int) -> RedirectResponse:
        conditions.check_seen(pool, group_id, reader.seen)
        if not conditions.is_waited_for(pool, group_id, reader.changed):
            raise _not_allowed()
        actions.poke_now(pool, group_id, reader.name)
        return _back(request, f"/conditions/{group_id}")

    @router.post("/instances/{instance_id}/cancel")
    def cancel(request: Request, reader: Actor, instance_id: int) -> RedirectResponse:
        _must_change(pool, reader, instance_id)
        actions.cancel(pool, instance_id, reader.name)
        return _back(request, f"/instances/{instance_id}")

    @router.post("/instances/{instance_id}/hand-back")
    def hand_back(request: Request, reader: Actor, instance_id: int) -> RedirectResponse:
        _must_change(pool, reader, instance_id)
        actions.hand_back(pool, instance_id, reader.name)
        return _back(request, f"/instances/{instance_id}")

    @router.post("/quarantine/{condition_id}/release")
    def release(request: Request, reader: Actor, condition_id: str) -> RedirectResponse:
        if not reader.operates:
            raise _not_allowed()
        actions.release(pool, condition_id, reader.name)
        return _back(request, "/quarantine")

    return router


def _must_change(pool: Pool, reader: Reader, instance_id: int) -> None:
    if not reader.changes(visible_instance(pool, reader, instance_id)["dag_id"]):
        raise _not_allowed()


def _not_allowed() -> Denied:
    return Denied("you may look at this, and not change it")


def _back(request: Request, path: str) -> RedirectResponse:
    return RedirectResponse(f"{request.scope.get('root_path', '')}{path}{kept_query(request)}", _SEE_OTHER)
