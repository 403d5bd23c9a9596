"""The syntax tree of a source."""

import ast
import gc


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
