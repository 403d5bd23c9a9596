"""``POST /wake``: a wake-up, or an event of a bucket, from who knows the token. It can only cause pokes."""

import hmac

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from sensorpool.client import storage_events
from sensorpool.client.pool import Pool
from sensorpool.errors import Refused, SensorpoolError
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import printable
from sensorpool.web.token_access import failed_logins, given_in

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
            failed_logins.note(request)
            challenge = {"WWW-Authenticate": 'Basic realm="sensorpool"'}
            return JSONResponse({"error": "the token is missing or wrong"}, 401, challenge)
        body = bytearray()
        try:
            async for part in request.stream():
                body += part
                if len(body) > storage_events.LONGEST:
                    return JSONResponse({"error": f"a message has at most {storage_events.LONGEST:,} bytes"}, 413)
        except ClientDisconnect:  # there is no reader of the answer
            return JSONResponse({"error": "the message has no end"}, 400)
        try:
            kind = request.headers.get("ce-type", "")
            return JSONResponse({"woken": await run_in_threadpool(_wake, pool, bytes(body), kind)})
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
