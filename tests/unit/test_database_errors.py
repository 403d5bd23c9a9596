"""What a driver's error means: in each other's way, or away."""

import pytest
from sqlalchemy.exc import OperationalError

from sensorpool.store.database import is_conflict, is_unreachable

pymysql = pytest.importorskip("pymysql")


@pytest.mark.parametrize(
    ("number", "conflict", "unreachable"),
    [(1205, True, False), (1213, True, False), (1040, False, True), (2006, False, True), (1146, False, False)],
)
@pytest.mark.parametrize("sqlstate", [None, "HY000"])
def test_a_number_of_mysql_says_more_than_its_sqlstate(
    number: int, conflict: bool, unreachable: bool, sqlstate: str | None
) -> None:
    """Newer versions of its driver say both."""
    theirs = pymysql.err.OperationalError(number, "as told")
    if sqlstate is not None:
        theirs.sqlstate = sqlstate
    error = OperationalError("SELECT 1", {}, theirs)
    assert (is_conflict(error), is_unreachable(error)) == (conflict, unreachable)
