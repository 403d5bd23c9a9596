"""The modules of the package that benchmarks name exist."""

from pathlib import Path

import pytest

from benchmarks.hotpath import PARTS, part_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", [path for path in PARTS if path.startswith(("sensorpool/", "benchmarks/"))])
def test_a_part_of_the_hot_path_is_there(path: str) -> None:
    assert (ROOT / path).is_dir() if path.endswith("/") else (ROOT / f"{path}.py").is_file()


def test_the_innermost_part_counts() -> None:
    stack = ["billiard/pool.py:1", "sensorpool/worker/job.py:2", "sensorpool/settle/flush.py:3", "sqlalchemy/x.py:4"]
    assert part_of(stack) == "settle"
