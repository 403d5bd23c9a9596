"""MariaDB's clock in a zone with summer time: an hour that comes twice is two hours."""

from datetime import UTC, datetime

from sqlalchemy import Connection

from sensorpool.store.database import Database

ENDS = int(datetime(2026, 10, 25, tzinfo=UTC).timestamp())  # "02:00" comes twice in the hours about 01:00 UTC
ZONES = ["SYSTEM", "+05:30", "Europe/Berlin"]
BERLIN = (
    "INSERT INTO mysql.time_zone (Time_zone_id, Use_leap_seconds) VALUES (7700, 'N')",
    "INSERT INTO mysql.time_zone_name (Name, Time_zone_id) VALUES ('Europe/Berlin', 7700)",
    "INSERT INTO mysql.time_zone_transition (Time_zone_id, Transition_time, Transition_type_id) VALUES"
    " (7700, 1774746000, 1), (7700, 1792890000, 0), (7700, 1806195600, 1)",
    "INSERT INTO mysql.time_zone_transition_type (Time_zone_id, Transition_type_id, `Offset`, Is_DST, Abbreviation)"
    " VALUES (7700, 0, 3600, 0, 'CET'), (7700, 1, 7200, 1, 'CEST')",
)


def _make_zone(connection: Connection) -> None:
    if connection.exec_driver_sql("SELECT 1 FROM mysql.time_zone_name WHERE Name = 'Europe/Berlin'").first() is None:
        for statement in BERLIN:
            connection.exec_driver_sql(statement)


def test_the_clock_runs_on_when_summer_time_ends(mariadb_database: str) -> None:
    database = Database(mariadb_database)

    def ask(connection: Connection) -> set[int]:
        _make_zone(connection)
        told = set()
        for zone in ZONES:
            connection.exec_driver_sql(f"SET time_zone = '{zone}'")
            for moment in range(ENDS - 3600, ENDS + 3 * 3600, 900):
                connection.exec_driver_sql(f"SET timestamp = {moment}.25")
                told.add(database.now(connection) - moment * 1000)
        connection.exec_driver_sql("SET timestamp = DEFAULT, time_zone = DEFAULT")
        return told

    assert database.read(ask) == {250}
    database.dispose()
