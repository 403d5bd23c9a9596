"""The load's query and the pure rule agree on the servers, too (on SQLite: `tests/unit/test_due.py`)."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from sensorpool.store.database import Database
from tests.support import due_agreement


@pytest.fixture(params=["postgres", pytest.param("mariadb", marks=pytest.mark.mariadb)])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database of each kind, with the tables in it."""
    made = Database(request.getfixturevalue(f"{request.param}_database"))
    yield made
    made.dispose()


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(look=due_agreement.looks())
def test_the_query_and_the_rule_agree(database: Database, look: due_agreement.Look) -> None:
    due_agreement.assert_agreement(database, look)
