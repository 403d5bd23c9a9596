"""This version reads the state that the first release leaves in Redis, byte for byte as its code wrote it.

`tests.support.released` names the commit; `tests/faults/test_versions.py` runs its code beside this one.
"""

from typing import Any

import pytest

from sensorpool.leases.lease import Acquired, Leases
from sensorpool.leases.poke_log import Poked, latest_pokes, poked_by
from sensorpool.leases.range_state import RangeState, read_state
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.states import Outcome
from sensorpool.model.suspicion import Suspicion
from sensorpool.model.values import ShardRange

RANGE = ShardRange(0, 1_250)
AT = 1_700_000_000_000
STATE = (
    '{"last":1700000000000,"recent":[9],"left":[5,6],"infra":{"7":1699999990000},"holder":"celery@a/b7c1",'
    '"groups":4,"pokes":3,"lag_ms":20,"seconds":0.125}'
)
SUSPECTS = {
    "3": "in a dead holder's hands",
    "4": "ran out of memory",
    "5": "overran its time limit",
    "6": "its poke takes long",
}
# a poke of each outcome
RECORD = '[1700000000000,"abcdefghi",[0,10,20,30,40,50,60,70,80],[1,2,3,4,5,6,7,8,9],{"4":"no route to host"}]'


@pytest.fixture
def leases(client: Any) -> Leases:
    """Leases on a Redis that the first release has used."""
    client.set("sensorpool:{0-1250}:state", STATE, px=86_400_000)
    client.set("sensorpool:{0-1250}:note", "[7, 8]")
    client.set("sensorpool:{0-1250}:dirty", "1", px=60_000)
    client.hset("sensorpool:{0-1250}:suspects", mapping=SUSPECTS)
    client.set("sensorpool:{0-1250}:alone:3", "1", px=60_000)
    client.zadd("sensorpool:{0-1250}:pokes", {RECORD: AT + 60_000})
    return Leases(RedisStore(client), lease_ttl=60)


def test_who_only_passes_a_state_on_does_not_pass_for_its_writer() -> None:
    theirs = read_state('{"last":1700000000000}')
    assert theirs.is_of_first_release
    assert read_state(theirs.text()).is_of_first_release
    assert not read_state(RangeState(last=1).text()).is_of_first_release


def test_a_holder_takes_up_what_the_last_one_left(leases: Leases) -> None:
    held = leases.acquire(RANGE, "celery@b/1")
    assert isinstance(held, Acquired)
    assert held.dirty
    assert held.in_flight == [7, 8]
    assert (held.lost_turn, held.late, held.unsettled) == ([], [], {})
    assert held.state == RangeState(
        last=AT,
        recent=[9],
        left=[5, 6],
        infra={7: AT - 10_000},
        holder="celery@a/b7c1",
        groups=4,
        pokes=3,
        lag_ms=20,
        seconds=0.125,
    )


def test_every_reason_of_a_suspect_is_known(leases: Leases) -> None:
    held = leases.acquire(RANGE, "celery@b/1")
    assert isinstance(held, Acquired)
    assert held.suspects == {
        3: Suspicion.DEAD_HOLDER,
        4: Suspicion.OUT_OF_MEMORY,
        5: Suspicion.OVERRAN,
        6: Suspicion.SLOW,
    }
    assert leases.suspects.why(RANGE, 4) is Suspicion.OUT_OF_MEMORY


def test_a_lease_that_it_holds_is_respected(leases: Leases, client: Any) -> None:
    client.set("sensorpool:{0-1250}:lease", "celery@a/b7c1", px=60_000)
    assert leases.acquire(RANGE, "celery@b/1") == "celery@a/b7c1"
    assert leases.look([RANGE])[0][0] == "celery@a/b7c1"
    assert leases.free(RANGE, "celery@a/b7c1")
    assert isinstance(leases.acquire(RANGE, "celery@b/1"), Acquired)


def test_a_claim_of_it_is_respected_and_says_no_time(leases: Leases) -> None:
    assert leases.claims.take(RANGE, [3, 4], 60, AT) == [4]
    assert leases.claims.since([RANGE]) == {4: AT}


def test_its_poke_log_is_read(leases: Leases) -> None:
    records = leases.poke_log.records(RANGE)
    found = latest_pokes(records, range(1, 10))
    assert [poke.outcome for poke in found.values()] == list(Outcome)[:9]
    assert found[5] == Poked(AT + 40, Outcome.INFRA_FAILURE, "no route to host")
    assert poked_by(records, "celery@a 1") == {}


def test_a_record_of_today_is_kept_beside_it(leases: Leases) -> None:
    leases.poke_log.keep(RANGE, [('[1700000001000,"a",[0],[1],{},"celery@b 1"]', AT + 61_000)], AT + 1_000)
    found = latest_pokes(leases.poke_log.records(RANGE), {1, 2})
    assert found == {1: Poked(AT + 1_000, Outcome.LANDED), 2: Poked(AT + 10, Outcome.NOT_LANDED)}
