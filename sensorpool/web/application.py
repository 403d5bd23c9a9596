"""The application that serves the pages of a pool. Another application may mount it, with an access of its own."""

from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.base import RequestResponseEndpoint
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from sensorpool.client.pool import Pool
from sensorpool.errors import KeyConflict, Refused, SensorpoolError, Unknown
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.web import acting, looking, waking
from sensorpool.web.access import Access, Denied, Surroundings
from sensorpool.web.rendering import STATIC, Pages, secure

log = logger(__name__)


def application(
    pool: Pool, access: Access, surroundings: Surroundings | None = None, *, wake_token: str = ""
) -> FastAPI:
    """Make the application.

    :param access: asked for each page who its reader is; only the style and the script need none.
    :param surroundings: tells more than the pool knows; None: there is nothing around the pages.
    :param wake_token: the secret of ``POST /wake``; without one it is not there.
    """
    # a redirect of Starlette's to the path without its last slash would name the host that the request names
    app = FastAPI(title="sensorpool", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    pages = Pages()
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.include_router(looking.routes(pool, access, pages, surroundings or Surroundings()))
    app.include_router(acting.routes(pool, access))
    if wake_token:
        app.include_router(waking.routes(pool, wake_token))
    _answer_errors(app, pages)

    @app.middleware("http")
    async def add_headers(request: Request, call_next: RequestResponseEndpoint) -> Response:
        answer = await call_next(request)
        if "etag" in answer.headers:
            answer.headers["Cache-Control"] = "no-cache"  # a browser keeps our files, and asks whether they are new
        secure(answer)
        return answer

    return app


def _answer_errors(app: FastAPI, pages: Pages) -> None:
    """Answer each error with a page of one line: what is wrong, and what mends it."""

    def say(request: Request, line: str, status: int) -> HTMLResponse:
        return pages.page(request, None, "error", status, line=line)

    @app.exception_handler(Denied)
    def denied(request: Request, error: Denied) -> Response:
        response = say(request, str(error), error.status)
        if error.challenge is not None:
            response.headers["WWW-Authenticate"] = error.challenge
        return response

    @app.exception_handler(SensorpoolError)
    def not_done(request: Request, error: SensorpoolError) -> Response:
        status = 404 if isinstance(error, Unknown) else 409 if isinstance(error, Refused | KeyConflict) else 503
        return say(request, str(error), status)

    @app.exception_handler(RequestValidationError)
    def odd_question(request: Request, error: RequestValidationError) -> Response:
        names = ", ".join(sorted({str(each["loc"][-1]) for each in error.errors()}))
        return say(request, f"the address has a wrong value: {names}", 422)

    @app.exception_handler(HTTPException)
    def no_page(request: Request, error: HTTPException) -> Response:
        is_missing = error.status_code == HTTPStatus.NOT_FOUND
        return say(request, "there is no such page" if is_missing else str(error.detail), error.status_code)

    @app.exception_handler(Exception)
    def broken(request: Request, error: Exception) -> Response:
        log.error("a page cannot be made", path=request.url.path, error=one_line(error))
        return say(request, "this page cannot be made: the log of this process says why", 500)
