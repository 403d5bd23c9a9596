"""How many ids have room in the context of a join, whatever their length."""

import pytest

from sensorpool.client.join import _MOST, _in_one_context
from sensorpool.model.identity import canonical_context


@pytest.mark.parametrize("first", [1, 10**9, 10**12 - 2 * _MOST, 10**12, 1_790_000_000_000_000, 2**63 - 2 * _MOST])
def test_so_many_fit(first: int) -> None:
    ids = range(first, first + _MOST)
    many = _in_one_context(ids)
    canonical_context({"instances": list(ids[:many])})
    assert many == _MOST or first >= 10**12
    assert many > 3_000
