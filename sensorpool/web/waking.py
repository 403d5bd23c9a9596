"""``POST /wake``: a wake-up, or an event of a bucket, from who knows the token. It can only cause pokes."""

import hmac

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from sensorpool.client import storage_events
from sensorpool.client.pool import Pool
from sensorpool.errors import Refused, SensorpoolError
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import printable
from sensorpool.web.token_access import given_in, note_failed_login

PATH = "/wake"
_LONGEST = 1_000  # characters of a text of SNS

log = logger(__name__)


def routes(pool: Pool, token: str) -> APIRouter:
    """Return the route.

    :param token: comes as a bearer token, as the password of a basic login (SNS), or as ``?token=`` (Pub/Sub).
    """
    router = APIRouter()

    @router.post(PATH)
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
    if (asked := storage_events.subscription(body)) is not None:
        # the token confirms a subscription, and does nothing else
        topic, answer = printable(asked.topic)[:_LONGEST], printable(asked.token)[:_LONGEST]
        log.warning(
            "SNS asks whether it may send here; `aws sns confirm-subscription` says yes", topic=topic, by=answer
        )
        return 0
    return pool.wake_all(storage_events.read(body, kind))


def _knows(request: Request, token: str) -> bool:
    # Pub/Sub and Eventarc may send a token of Google's in the header, beside ours in the address
    given = given_in(request.headers.get("authorization", ""))[1], request.query_params.get("token", "")
    return any(hmac.compare_digest(each.encode(errors="replace"), token.encode()) for each in given)
