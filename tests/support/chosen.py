"""A part of a slow suite, chosen by the run's seed: other runs take other parts. A named test is always taken."""

import math
import os
import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import SEED


def choose(
    config: pytest.Config, items: list[pytest.Item], group_of: Callable[[pytest.Item], str | None], one_in: int
) -> None:
    """Keep one in so many tests of each group, where a whole folder runs, without ``-k``.

    :param group_of: returns the name of a test's group; None: the test is kept.
    """
    if config.option.keyword or not any(Path(each.partition("::")[0]).is_dir() for each in config.args):
        return
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if (group := group_of(item)) is not None:
            groups[group].append(item)
    left_out: set[pytest.Item] = set()
    for name, some in groups.items():
        rng = random.Random(f"{os.environ[SEED]} {name}")
        left_out.update(rng.sample(some, len(some) - math.ceil(len(some) / one_in)))
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]
