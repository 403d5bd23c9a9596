"""The model holds its guarantees in every reachable state, and each way of making it wrong has a counterexample."""

from dataclasses import fields, replace

import pytest

from tests.faults.model.explorer import explore
from tests.faults.model.model import Faults

CAUGHT_BY = {
    "no_version_check": ("G3",),
    "no_state_guard": ("G2",),
    "lease_never_expires": ("G1",),
    "group_goes_while_newer_member_waits": ("GROUPS",),
    "timeout_without_late_poke": ("G6",),
    "registration_takes_no_version": ("G3",),
    "group_ids_used_again": ("G3",),
    "superseded_try_not_cancelled": ("KEYS",),
}


def test_the_model_holds_its_guarantees(capsys: pytest.CaptureFixture[str]) -> None:
    explored = explore(Faults())
    with capsys.disabled():
        print(f"\nthe model: {explored.states:,} states")
    assert explored.broken is None, f"{explored.broken}: {', '.join(explored.trace)}"


def test_every_fault_of_the_model_is_listed() -> None:
    assert set(CAUGHT_BY) == {field.name for field in fields(Faults)}


@pytest.mark.parametrize("fault", CAUGHT_BY)
def test_each_fault_of_the_model_is_found(fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    explored = explore(replace(Faults(), **{fault: True}))
    with capsys.disabled():
        print(f"\n{fault}: {explored.broken}, after: {', '.join(explored.trace)}")
    assert explored.broken is not None, f"{fault} goes unnoticed in {explored.states:,} states"
    assert explored.broken.startswith(CAUGHT_BY[fault]), explored.broken
