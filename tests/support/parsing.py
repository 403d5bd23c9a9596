"""The syntax tree of a source."""

import ast
import gc
from typing import Any, NoReturn


def parsed(source: str) -> ast.Module:
    """Parse a source, and collect no garbage meanwhile.

    What is collected may log an exception, whose traceback is parsed, too: before 3.11.8 Python then raises
    `SystemError` for the outer one (gh-106905).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        if was_enabled:
            gc.enable()


def mismatch(*_: Any, **__: Any) -> NoReturn:
    """Fail as `ast.parse` does where another parse came between, before 3.11.8."""
    raise SystemError("AST constructor recursion depth mismatch (before=63, after=57)")
