"""The audit: a trigger in the database notes every change of an instance's state, from any process."""

from collections import Counter
from dataclasses import dataclass

from sqlalchemy import text

from sensorpool.store.database import Database, table_prefix

_POSTGRES = (
    "CREATE TABLE {in_}audit (id bigserial PRIMARY KEY, instance_id bigint, was text, became text)",
    """CREATE FUNCTION {in_}note_state() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
         INSERT INTO {in_}audit (instance_id, was, became) VALUES (NEW.id, OLD.state, NEW.state); RETURN NEW; END $$""",
    """CREATE TRIGGER note_state AFTER UPDATE ON {in_}sensor_instance FOR EACH ROW
         WHEN (OLD.state IS DISTINCT FROM NEW.state OR OLD.state <> 'sensing') EXECUTE FUNCTION {in_}note_state()""",
)


@dataclass(frozen=True)
class Audit:
    """The findings of the audit; all lists must be empty."""

    still_sensing: list[int]
    doubled: list[int]  # more than one change into a terminal state
    changed: list[tuple[int, str, str]]  # out of a terminal state

    @property
    def is_clean(self) -> bool:
        """Whether every instance took exactly one terminal state."""
        return not (self.still_sensing or self.doubled or self.changed)


def install(database: Database) -> None:
    """Install the audit (PostgreSQL)."""
    with database.engine.begin() as connection:
        for statement in _POSTGRES:
            connection.execute(text(statement.format(in_=table_prefix(connection))))


def read(database: Database) -> Audit:
    """Read the audit, and the instances that are still sensing."""
    with database.engine.connect() as connection:
        prefix = table_prefix(connection)
        changes = connection.execute(text(f"SELECT instance_id, was, became FROM {prefix}audit")).all()
        waiting = text(f"SELECT id FROM {prefix}sensor_instance WHERE state = 'sensing'")
        sensing = connection.execute(waiting).scalars().all()
    times = Counter(row[0] for row in changes)
    return Audit(
        still_sensing=list(sensing),
        doubled=[instance_id for instance_id, count in times.items() if count > 1],
        changed=[(row[0], row[1], row[2]) for row in changes if row[1] != "sensing"],
    )
