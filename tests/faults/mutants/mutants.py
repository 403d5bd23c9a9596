"""The seeded faults, as data. Each text must occur exactly once in its file, or the run fails: then mend the table.

Two faults are left out, because alone they change nothing: the write's own `state = 'sensing'` (the members were read
under the locks), and the deletion's own look for members (for the same reason). Each is here together with the other
check.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """One change of one file of the package."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A fault, and the guarantees of which one must catch it (or tests, where the stateful test cannot see it)."""

    name: str
    edits: tuple[Edit, ...]
    caught_by: tuple[str, ...]
    store: str = "sqlite"
    tests: str = "tests/faults/stateful"


_SQLITE_GUARD = Edit(
    "store/settling.py",
    '        .where(s.c.id == bindparam("instance_id"), s.c.state == State.SENSING)\n',
    '        .where(s.c.id == bindparam("instance_id"))\n',
)
_POSTGRES_GUARD = Edit(
    "store/settling.py",
    "WHERE s.id = ANY (%(ids)s::bigint[]) AND s.state = 'sensing'\n",
    "WHERE s.id = ANY (%(ids)s::bigint[])\n",
)
_MEMBERS_GUARD = Edit(
    "store/settling.py", ").where(among(s.c.group_id), s.c.state == State.SENSING)", ").where(among(s.c.group_id))"
)
_CANCEL_GUARD = Edit(
    "store/settling.py",
    "select(s.c.id, s.c.group_id).where(among(s.c.id), s.c.state == State.SENSING)",
    "select(s.c.id, s.c.group_id).where(among(s.c.id))",
)
_NEWER_FORGOTTEN = Edit(
    "settle/flush.py",
    "    staying = {m.group_id for m in members if m.id not in ending} & touched\n",
    "    seen = [m for m in members if m.joined_version <= by_group[m.group_id].version]\n"
    "    staying = {m.group_id for m in seen if m.id not in ending} & touched\n",
)
_DELETE_UNSEEN = Edit(
    "store/settling.py", "delete(g).where(among(g.c.id), _STILL_SENSING.is_(None))", "delete(g).where(among(g.c.id))"
)
_DELETE_UNSEEN_POSTGRES = Edit(
    "store/settling.py",
    "delete(g).where(among(g.c.id), g.c.id != all_(_SENSING_GROUPS))",
    "delete(g).where(among(g.c.id))",
)
_DIGEST_OF_HASHCODE = Edit("model/identity.py", "        digest=digest,\n", "        digest=digest[:8] + bytes(24),\n")
_SQLITE_UNCOMPARED = Edit(
    "store/registering.py",
    "((row := joined[each.joined_digest]).op_classpath, row.poke_context) == identities[each.joined_digest]",
    "(row := joined[each.joined_digest]) and identities",
)
_POSTGRES_UNCOMPARED = Edit(
    "store/registering_postgres.py",
    "    WHERE g.op_classpath = excluded.op_classpath AND g.poke_context = excluded.poke_context\n",
    "",
)
_OUTBOX = "        flushed.outbox_id = outbox_rows.note(connection, ids, now)\n"


def _one(name: str, file: str, old: str, new: str, *caught_by: str, store: str = "sqlite") -> Mutant:
    return Mutant(name, (Edit(file, old, new),), caught_by, store)


MUTANTS = (
    # settle
    _one(
        "no version check",
        "settle/decide.py",
        "        if member.joined_version > fact.version:\n            continue\n",
        "",
        *("G3", "G6"),
    ),
    Mutant("no state guard", (_MEMBERS_GUARD, _SQLITE_GUARD), ("G2", "GROUPS")),
    Mutant("no state guard, PostgreSQL", (_MEMBERS_GUARD, _POSTGRES_GUARD), ("G2", "GROUPS"), "postgres"),
    Mutant("a terminal state is overwritten by cancel", (_CANCEL_GUARD, _SQLITE_GUARD), ("G2",)),
    Mutant("the same, PostgreSQL", (_CANCEL_GUARD, _POSTGRES_GUARD), ("G2",), "postgres"),
    _one(
        "a timeout without a late poke",
        "settle/decide.py",
        "fact.began_at >= member.timeout_at\n",
        "fact.began_at >= member.timeout_at - 5_000\n",
        "G6",
    ),
    _one(
        "deadlines do not matter",
        "settle/decide.py",
        "    return timeouts and next_deadline is not None and began_at >= next_deadline\n",
        "    return False\n",
        "G1",
    ),
    # due and load
    _one(
        "the query misses the first moment of a period",
        "store/loading.py",
        "(_NOW + g.c.phase) % _INTERVAL < _NOW - _LAST,",
        "(_NOW - 1 + g.c.phase) % _INTERVAL < _NOW - 1 - _LAST,",
        "G5",
    ),
    Mutant(
        "query and rule miss the first moment of a period",
        (
            Edit(
                "store/loading.py",
                "(_NOW + g.c.phase) % _INTERVAL < _NOW - _LAST,",
                "(_NOW - 1 + g.c.phase) % _INTERVAL < _NOW - 1 - _LAST,",
            ),
            Edit(
                "model/due.py",
                "        period(now, poke_interval, phase) >",
                "        period(now - 1, poke_interval, phase) >",
            ),
        ),
        ("G5",),
    ),
    _one(
        "the query misses the first moment of a deadline",
        "store/loading.py",
        "g.c.next_deadline <= _NOW",
        "g.c.next_deadline < _NOW",
        *("G5", "G1"),
    ),
    Mutant(
        "query and rule miss the first moment of a deadline",
        (
            Edit("store/loading.py", "g.c.next_deadline <= _NOW", "g.c.next_deadline < _NOW"),
            Edit("model/due.py", "last < next_deadline <= now", "last < next_deadline < now"),
        ),
        ("G1",),
    ),
    # publish
    _one("no outbox", "settle/flush.py", _OUTBOX, "        flushed.outbox_id = 0\n", "G7"),
    Mutant(
        "the outbox is written after the commit",
        (
            Edit(
                "settle/flush.py",
                "        yield database.transaction(attempts=attempts, kept=_is_kept).run(change)\n",
                "        done = database.transaction(attempts=attempts).run(change)\n"
                "        ids = [each.id for each in done.settled]\n"
                "        if ids:\n"
                "            done.outbox_id = database.run(\n"
                "                lambda c: outbox_rows.note(c, ids, database.now(c))\n"
                "            )\n"
                "        yield done\n",
            ),
            Edit(
                "settle/flush.py",
                "    flushed.unsettled = unsettled\n",
                "    flushed.unsettled = unsettled\n    outbox_rows.forget(connection, flushed.outbox_id or 0)\n",
            ),
        ),
        ("G7",),
    ),
    # groups
    Mutant("a group goes while a newer member waits", (_NEWER_FORGOTTEN, _DELETE_UNSEEN), ("GROUPS",)),
    Mutant("the same, on PostgreSQL", (_NEWER_FORGOTTEN, _DELETE_UNSEEN_POSTGRES), ("GROUPS",), "postgres"),
    _one(
        "an interval outlives its member",
        "store/settling.py",
        "                poke_interval=_over_sensing(func.min(s.c.poke_interval)),\n",
        "",
        "GROUPS",
    ),
    _one(
        "a deadline outlives its member",
        "store/settling.py",
        "                next_deadline=_over_sensing(func.min(s.c.next_deadline)),\n",
        "",
        "GROUPS",
    ),
    # registration
    _one(
        "a registration takes no version",
        "store/registering.py",
        '        "version": g.c.version + new.version,\n',
        "",
        *("G3", "G5", "G6", "G1"),
    ),
    _one(
        "a registration takes no version, PostgreSQL",
        "store/registering_postgres.py",
        "        version = g.version + excluded.version,\n",
        "",
        *("G3", "G5", "G6", "G1"),
        store="postgres",
    ),
    Mutant("the hashcode is the identity", (_DIGEST_OF_HASHCODE, _SQLITE_UNCOMPARED), ("GROUPS", "KEYS")),
    Mutant("digests are of the hashcode", (_DIGEST_OF_HASHCODE,), ("KEYS",)),
    Mutant("contexts are not compared", (_SQLITE_UNCOMPARED,), ("GROUPS", "KEYS")),
    Mutant("contexts are not compared, PostgreSQL", (_POSTGRES_UNCOMPARED,), ("GROUPS", "KEYS"), "postgres"),
)
