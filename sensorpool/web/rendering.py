"""Makes pages of what `admin` returns. Whatever a poke, a user or a server said is escaped, and nothing runs inline."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from sensorpool.config import __version__
from sensorpool.instrumentation.redaction import printable
from sensorpool.model.words import ago
from sensorpool.web.access import Reader

_HERE = Path(__file__).parent
STATIC = _HERE / "static"
_TALLEST, _LOWEST, _SECOND = 32, 6, 12  # pixels of a bar: at most, at least, and for each second of its poke
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'self'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Pages:
    """The templates, with what each of them may use."""

    def __init__(self) -> None:
        self._templates = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {"ago": _ago, "time": _time, "json": _json, "clean": _clean, "height": _height}

    def page(self, request: Request, reader: Reader | None, name: str, code: int = 200, **values: Any) -> HTMLResponse:
        """Return a page.

        :param reader: who asks; None: a page without forms, for who is not logged in.
        :param name: of the template.
        """
        text = self._templates.get_template(f"{name}.html").render(
            reader=reader,
            root=request.scope.get("root_path", ""),
            path=request.url.path,
            keep=kept_query(request),
            version=__version__,
            **values,
        )
        response = HTMLResponse(text, code)
        secure(response)
        return response


def kept_query(request: Request) -> str:
    """Return what the links of a page keep of its query: that it has no header, for it is in a frame."""
    return "?embedded=1" if request.query_params.get("embedded") == "1" else ""


def secure(response: Response) -> None:
    """Add the headers that forbid a browser what no page needs."""
    for header, value in HEADERS.items():
        response.headers.setdefault(header, value)


def _ago(text: str | None) -> str:
    """Spell a time as its distance from now."""
    return _clean(ago(text, datetime.now(UTC)))


def _time(text: str | None) -> str:
    return "" if text is None else _clean(text)[:19].replace("T", " ")


def _json(value: object) -> str:
    return printable(json.dumps(value, ensure_ascii=False, default=str))


def _clean(value: object) -> str:
    return "" if value is None else printable(str(value))


def _height(seconds: float | None) -> int:
    """Return the pixels of a poke's bar."""
    return max(_LOWEST, min(_TALLEST, round((seconds or 0.0) * _SECOND)))
