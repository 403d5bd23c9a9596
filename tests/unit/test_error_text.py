"""The text of an error: one line, without secrets, and never empty."""

import pytest

from sensorpool.instrumentation.redaction import error_text, one_line


class Unreadable(Exception):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        raise ValueError("as told")


@pytest.mark.parametrize(
    ("error", "text", "line"),
    [
        (ValueError("two\n lines"), "two lines", "ValueError: two lines"),
        (ValueError(), "ValueError", "ValueError"),
        (ValueError("at redis://user:secret@host/0"), "at redis://user:***@host/0", None),
        (ValueError("\x1b[31mred"), "\\u001b[31mred", "ValueError: \\u001b[31mred"),
        (Unreadable(), "(its text cannot be read)", "Unreadable: (its text cannot be read)"),
    ],
)
def test_an_error_is_said_in_one_line(error: Exception, text: str, line: str | None) -> None:
    assert error_text(error) == text
    assert one_line(error) == (line or f"{type(error).__name__}: {text}")


def test_a_long_text_is_cut() -> None:
    assert len(error_text(ValueError("x" * 10_000), 200)) == 200
    assert len(error_text(ValueError("x" * 10_000))) == len(one_line(ValueError("x" * 10_000))) == 500
