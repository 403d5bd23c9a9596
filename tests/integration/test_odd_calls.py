"""Calls with nearly right arguments: an instance in place of its id works; a wrong argument is refused in one line."""

from collections.abc import Callable

import pytest

from sensorpool import Pool
from sensorpool.errors import Refused
from sensorpool.model.states import State

PATH = "sensorpool.sensors.PathSensor"


def test_an_instance_stands_for_its_id(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    made = pool.register(PATH, {"path": "/nowhere"})
    assert pool.wait([made], timeout=0) == pool.wait(made, timeout=0) == {made.id: State.SENSING}
    assert pool.cancel(made) is State.CANCELLED
    assert pool.wait([made.id, made]) == {made.id: State.CANCELLED}


@pytest.mark.parametrize("name", ["timeout", "poke_interval", "execution_timeout", "max_wait"])
def test_a_span_that_no_float_holds_is_refused(make_pool: Callable[..., Pool], name: str) -> None:
    with pytest.raises(Refused, match=f"{name} must be .* at most ten years"):
        make_pool().register_many([{"sensor": PATH, "poke_context": {"path": "/nowhere"}, name: 10**400}])
