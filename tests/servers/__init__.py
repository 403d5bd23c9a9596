"""Servers as people have them: TLS, ACLs, Sentinels, PgBouncer, standbys. `make servers` runs these tests."""
