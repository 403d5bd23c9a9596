"""The seeded faults, as data. Each text must occur exactly once in its file, or the run fails: then mend the table.

Two faults are left out, because alone they change nothing: the write's own `state = 'sensing'` (the members were read
under the locks), and the deletion's own look for members (for the same reason). Each is here together with the other
check.
"""

from dataclasses import dataclass

LEASE_TESTS = "tests/unit/test_lease.py::"
UNIT_TESTS = "tests/unit/"
PATTERN_TESTS = "tests/unit/test_found_classes.py::"


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
    "store/settling_postgres.py",
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
        "a poke counts from when it is handed in",
        "worker/dispatch.py",
        "            seen = poking.step()\n",
        "            seen = [report._replace(began=time.monotonic()) for report in poking.step()]\n",
        "G6",
    ),
    _one(
        "deadlines do not matter",
        "settle/decide.py",
        "    return timeouts and next_deadline is not None and began_at >= next_deadline\n",
        "    return False\n",
        "G1",
    ),
    _one(
        "a clock jump suspends nothing",
        "worker/clock_watch.py",
        "return here >= self._doubt_until",
        "return True",
        "G11",
    ),
    # due and load
    _one(
        "the query misses the first moment of a period",
        "store/loading.py",
        "period(now) > period(last),",
        "period(now - 1) > period(last),",
        "G5",
    ),
    Mutant(
        "query and rule miss the first moment of a period",
        (
            Edit(
                "store/loading.py",
                "period(now) > period(last),",
                "period(now - 1) > period(last),",
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
        "g.c.next_deadline <= now",
        "g.c.next_deadline < now",
        *("G5", "G1"),
    ),
    Mutant(
        "query and rule miss the first moment of a deadline",
        (
            Edit("store/loading.py", "g.c.next_deadline <= now", "g.c.next_deadline < now"),
            Edit("model/due.py", "last < next_deadline <= now", "last < next_deadline < now"),
        ),
        ("G1",),
    ),
    _one(
        "what commits late is missed",
        "config/options.py",
        "        return round(self.commit_overlap * 1000)\n",
        "        return 0\n",
        "G5",
    ),
    _one(
        "what was poked as new is poked again",
        "worker/load.py",
        "if poked_as_new := set(held.state.recent) - left:",
        "if poked_as_new := set[int]():",
        "G4",
    ),
    _one(
        "what was poked as new is not noted",
        "worker/load.py",
        "return Loaded(now, last, units, recent, not_here)",
        "return Loaded(now, last, units, [], not_here)",
        "G4",
    ),
    _one(
        "what was left over is forgotten",
        "worker/job.py",
        "state.left = loaded.now, loaded.recent, left\n",
        "state.left = loaded.now, loaded.recent, []\n",
        "G5",
    ),
    _one(
        "a lost last load makes no group due",
        "worker/load.py",
        "        return max((last for last in candidates if last <= now), default=0)\n",
        "        return max((last for last in candidates if last <= now), default=0) or now\n",
        "G5",
    ),
    _one(
        "a last load in the future is believed",
        "worker/load.py",
        "(last for last in candidates if last <= now)",
        "(last for last in candidates)",
        "G5",
    ),
    # the marks
    Mutant(
        "a settle leaves a quiet mark",
        (Edit("worker/quiet.py", " or job_run.outcomes.may_hurry", ""),),
        ("test_a_settle_may_bring_a_deadline_nearer_so_it_leaves_no_quiet_mark",),
        tests=UNIT_TESTS + "test_outlook.py::test_a_settle_may_bring_a_deadline_nearer_so_it_leaves_no_quiet_mark",
    ),
    Mutant(
        "what is left over is quiet",
        (Edit("worker/quiet.py", "if state.left or state.stranded", "if state.stranded"),),
        ("test_what_was_left_over_keeps_a_range_from_being_quiet",),
        tests=UNIT_TESTS + "test_outlook.py::test_what_was_left_over_keeps_a_range_from_being_quiet",
    ),
    Mutant(
        "the next holder leaves the marks",
        (Edit("leases/lua/acquire.lua", ", KEYS[8], KEYS[9], KEYS[10])", ", KEYS[10])"),),
        ("test_the_next_holder_takes_them_away",),
        tests=UNIT_TESTS + "test_range_marks.py::test_the_next_holder_takes_them_away",
    ),
    Mutant(
        "beat goes by the clock of Redis alone",
        (
            Edit(
                "service/tick_plan.py",
                "if mark.quiet is not None and now - self._sent_at.get(shard_range, -mark.quiet) < mark.quiet:",
                "if mark.quiet is not None:",
            ),
        ),
        ("test_of_a_range_to_which_this_beat_has_sent_nothing_the_mark_counts_not",),
        tests=UNIT_TESTS + "test_tick_plan.py::test_of_a_range_to_which_this_beat_has_sent_nothing_the_mark_counts_not",
    ),
    # several ranges
    Mutant(
        "what pokes saw is the first range's",
        (Edit("worker/dispatch.py", "self._owners[group_id]", "self._shares[0]"),),
        ("test_each_range_has_its_own_groups_state_record_and_result",),
        tests=UNIT_TESTS + "test_joint_job.py::test_each_range_has_its_own_groups_state_record_and_result",
    ),
    Mutant(
        "all slow pokes are each range's",
        (Edit("worker/dispatch.py", "group_ids if self._owners.get(group_id, share) is share]", "group_ids]"),),
        ("test_slow_pokes_go_on_each_for_its_own_range",),
        tests=UNIT_TESTS + "test_joint_job.py::test_slow_pokes_go_on_each_for_its_own_range",
    ),
    Mutant(
        "one error gives back one lease",
        (
            Edit(
                "worker/job.py",
                "for visit in visits:\n            _give_back",
                "for visit in visits[:1]:\n            _give_back",
            ),
        ),
        ("test_an_error_gives_all_leases_back_and_all_groups_are_due_again",),
        tests=UNIT_TESTS + "test_joint_job.py::test_an_error_gives_all_leases_back_and_all_groups_are_due_again",
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
    _one(
        "the outbox is emptied before its message goes",
        "publish/outbox.py",
        "        self._publisher.publish(settled)\n",
        "        self._database.run(outbox_rows.forget, outbox_id)\n        self._publisher.publish(settled)\n",
        "G7",
    ),
    _one(
        "rescue ignores the outbox",
        "worker/chores/left_behind.py",
        "    now.done.published += now.worker.outbox.send_left_behind(now.worker.settings.rescue_interval / 2)\n",
        "",
        "G7",
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
    _one(
        "a superseded try is not cancelled",
        "client/register.py",
        "[cancel_in(self._database, connection, superseded)] if superseded else []",
        "[]",
        "KEYS",
    ),
    _one(
        "a lower try is accepted",
        "client/register.py",
        "        if other.key.try_number > ours:\n",
        "        if False:\n",
        "KEYS",
    ),
    # lease
    Mutant(
        "a lease never expires",
        (
            Edit(
                "leases/lua/acquire.lua",
                'redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2])',
                'redis.call("SET", KEYS[1], ARGV[1])',
            ),
            Edit(
                "leases/lua/acquire.lua", "left < 0 or left > tonumber(ARGV[2])", "false"
            ),  # this check would mend the fault
        ),
        ("G1",),
    ),
    Mutant(
        "a freeze is time of its poke",
        (
            Edit(
                "worker/frozen_pokes.py",
                "doubtful = [report for report in overran if self._is_doubtful(report)]",
                "doubtful: list[Report] = []",
            ),
        ),
        ("test_a_poke_in_which_the_process_stood_still_does_not_count",),
        tests="tests/unit/test_frozen_pokes.py::test_a_poke_in_which_the_process_stood_still_does_not_count",
    ),
    Mutant(
        "the time for which other code holds the event loop is time of a poke",
        (
            Edit(
                "poke/rounds.py",
                "going.prolong(max(0.0, lasted - (going.stepped or held_by.get(going, 0.0))))",
                "going.prolong(0.0)",
            ),
        ),
        ("test_a_hold_past_the_end_of_a_poke_makes_it_no_overrun",),
        tests="tests/unit/test_held_loops.py::test_a_hold_past_the_end_of_a_poke_makes_it_no_overrun",
    ),
    Mutant(
        "any process extends a lease",
        (Edit("leases/lua/extend.lua", 'redis.pcall("GET", KEYS[1]) == ARGV[1]', 'redis.pcall("GET", KEYS[1])'),),
        ("test_another_token_can_neither_renew_nor_end_a_lease",),
        tests=LEASE_TESTS + "test_another_token_can_neither_renew_nor_end_a_lease",
    ),
    Mutant(
        "any process gives a lease back",
        (Edit("leases/lua/finish.lua", 'redis.pcall("GET", KEYS[1]) ~= ARGV[1]', 'not redis.pcall("GET", KEYS[1])'),),
        ("test_another_token_can_neither_renew_nor_end_a_lease",),
        tests=LEASE_TESTS + "test_another_token_can_neither_renew_nor_end_a_lease",
    ),
    # many pokes as one value
    Mutant(
        "pokes in a row forget deadlines",
        (
            Edit(
                "worker/outcomes.py",
                "if watched or (trusted and deadline is not None and ",
                "if watched or (False and ",
            ),
        ),
        ("test_a_job_makes_the_same_of_it",),
        tests=UNIT_TESTS + "test_not_landed.py::test_a_job_makes_the_same_of_it",
    ),
    Mutant(
        "pokes in a row end no failure",
        (Edit("worker/outcomes.py", "            if watched or (trusted and ", "            if (trusted and "),),
        ("test_a_job_makes_the_same_of_it",),
        tests=UNIT_TESTS + "test_not_landed.py::test_a_job_makes_the_same_of_it",
    ),
    # patterns
    Mutant(
        "a pattern enables what runs commands",
        (
            Edit(
                "config/sources/class_kinds.py",
                "for kind in (Kind.EXACT, Kind.SENSOR):",
                "for kind in (Kind.SENSOR, Kind.EXACT):",
            ),
        ),
        ("test_what_is_in_doubt_or_derived_from_what_runs_commands_needs_its_exact_name",),
        tests=PATTERN_TESTS + "test_what_is_in_doubt_or_derived_from_what_runs_commands_needs_its_exact_name",
    ),
    Mutant(
        "a pattern enables all that it covers",
        (
            Edit(
                "config/allowlist.py",
                "return self._read().verdict(package_of(pattern), op_classpath).kind is Kind.SENSOR",
                "return True",
            ),
        ),
        ("test_one_at_a_time_or_all_at_once_is_the_same",),
        tests=PATTERN_TESTS + "test_one_at_a_time_or_all_at_once_is_the_same",
    ),
)
