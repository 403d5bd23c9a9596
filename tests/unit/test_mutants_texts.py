"""The texts of the seeded faults are in the code: the hunt itself, which would find out too, takes minutes."""

from pathlib import Path

import pytest

from tests.faults.mutants.mutants import MUTANTS, Edit

PACKAGE = Path(__file__).parents[2] / "sensorpool"


@pytest.mark.parametrize("edit", [edit for mutant in MUTANTS for edit in mutant.edits], ids=lambda edit: edit.file)
def test_a_seeded_fault_changes_one_place(edit: Edit) -> None:
    assert (PACKAGE / edit.file).read_text().count(edit.old) == 1, edit.old
    assert edit.new != edit.old
