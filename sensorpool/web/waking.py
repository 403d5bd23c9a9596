"""``POST /wake``: a wake-up, or an event of a bucket, from who knows the token. It can only cause pokes."""

import base64
import hmac

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from sensorpool.client import wake
from sensorpool.client.pool import Pool
from sensorpool.errors import Refused, SensorpoolError
from sensorpool.instrumentation.logs import logger

log = logger(__name__)


def routes(pool: Pool, token: str) -> APIRouter:
    """Return the route.

    :param token: comes as a bearer token, as the password of a basic login (SNS), or as ``?token=`` (Pub/Sub).
    """
    router = APIRouter()

    @router.post("/wake")
    async def take(request: Request) -> JSONResponse:
        if not _knows(request, token):
            note_failed_login(request)
            challenge = {"WWW-Authenticate": 'Basic realm="sensorpool"'}
            return JSONResponse({"error": "the token is missing or wrong"}, 401, challenge)
        try:
            kind = request.headers.get("ce-type", "")
            return JSONResponse({"woken": await run_in_threadpool(_wake, pool, await request.body(), kind)})
        except Refused as error:
            return JSONResponse({"error": str(error)}, 400)
        except SensorpoolError as error:  # who sent it tries again
            return JSONResponse({"error": str(error)}, 503)

    return router


def _wake(pool: Pool, body: bytes, kind: str) -> int:
    if (asked := wake.subscription(body)) is not None:
        # the token confirms a subscription, and does nothing else
        topic, token = asked
        log.warning("SNS asks whether it may send here; `aws sns confirm-subscription` says yes", topic=topic, by=token)
        return 0
    return pool.wake_all(wake.read_event(body, kind))


def _knows(request: Request, token: str) -> bool:
    # Pub/Sub and Eventarc may send a token of Google's in the header, beside ours in the address
    given = given_in(request.headers.get("authorization", ""))[1], request.query_params.get("token", "")
    return any(hmac.compare_digest(each.encode(errors="replace"), token.encode()) for each in given)


def given_in(header: str) -> tuple[str, str]:
    """Return the user and the token of an ``Authorization`` header: a bearer token has no user; empty: it has none."""
    kind, _, given = header.partition(" ")
    if kind.lower() == "bearer":
        return "", given.strip()
    if kind.lower() == "basic":
        try:
            user, _, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
        except ValueError:
            return "", ""
        return user, password
    return "", ""


def note_failed_login(request: Request) -> None:
    """Log a failed login, with the address that it came from."""
    client = request.client.host if request.client else "?"
    log.warning("a login failed: its token is wrong", client=client, path=request.url.path)
