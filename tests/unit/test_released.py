"""Without the history of the repository, tests that need it are skipped, or fail where it should exist."""

from pathlib import Path
from typing import Any

import pytest

from tests.support import released


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return scripted answers of git to commands; other commands have no answer."""
    said: dict[str, bytes] = {}
    real = released.subprocess.CompletedProcess

    def git(command: str, *_: str) -> Any:
        return real([command], 0 if command in said else 128, said.get(command, b""), b"")

    monkeypatch.setattr(released, "_git", git)
    return said


@pytest.mark.parametrize(
    ("shallow", "ci", "outcome"),
    [
        ("true", "true", pytest.skip.Exception),
        ("false", "true", pytest.fail.Exception),
        (None, "true", pytest.fail.Exception),
        ("true", "", pytest.skip.Exception),
        ("false", "", pytest.skip.Exception),
        (None, "", pytest.skip.Exception),
    ],
)
@pytest.mark.parametrize("asks", ["unpack", "before_newest_migration"])
def test_without_the_history(
    answers: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    shallow: str | None,
    ci: str,
    outcome: type[BaseException],
    asks: str,
) -> None:
    monkeypatch.setenv("CI", ci)
    if shallow is not None:
        answers["rev-parse"] = f"{shallow}\n".encode()
    with pytest.raises(outcome, match="is not in this repository's history"):
        released.unpack("1" * 40, tmp_path) if asks == "unpack" else released.before_newest_migration()
