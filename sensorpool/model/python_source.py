"""Python source that cannot be read."""

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError, SystemError)
"""What `ast.parse` raises; a ``SystemError`` where another parse came between, before Python 3.11.8 (gh-106905)."""
