"""What the forms of the pages do. Each action asks for the permission, refuses a forged request, and is recorded."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import RedirectResponse

from sensorpool.admin import actions, conditions
from sensorpool.client.pool import Pool
from sensorpool.web.access import Access, Denied, Reader
from sensorpool.web.looking import visible_instance
from sensorpool.web.rendering import kept_query

_SEE_OTHER = 303


def routes(pool: Pool, access: Access) -> APIRouter:
    """Return the routes of the actions."""
    router = APIRouter()

    def acting(request: Request, reader: Annotated[Reader, Depends(access.reader)]) -> Reader:
        _check_origin(request)
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


def _check_origin(request: Request) -> None:
    """Check that a form is from our own pages: a browser says where it is from, and no site can change that.

    :raises Denied: when it is from elsewhere.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:  # holds behind a proxy that changes the host's name, too
        is_ours = site in {"same-origin", "none"}
    else:  # no browser, or one that has no TLS to this host
        is_ours = origin is None or origin.partition("://")[2] == request.headers.get("host")
    if not is_ours:
        raise Denied("the form comes from another site")


def _must_change(pool: Pool, reader: Reader, instance_id: int) -> None:
    if not reader.changes(visible_instance(pool, reader, instance_id)["dag_id"]):
        raise _not_allowed()


def _not_allowed() -> Denied:
    return Denied("you may look at this, and not change it")


def _back(request: Request, path: str) -> RedirectResponse:
    return RedirectResponse(f"{request.scope.get('root_path', '')}{path}{kept_query(request)}", _SEE_OTHER)
