"""The step that takes reports in: `outcomes` judges them; what follows in Redis and the database is done here."""

from collections.abc import Sequence

from sensorpool.instrumentation.failpoint import failpoint
from sensorpool.instrumentation.logs import logger
from sensorpool.model.not_landed import Seen, apart
from sensorpool.model.suspicion import Suspicion
from sensorpool.worker import overruns
from sensorpool.worker.job_run import JobRun

log = logger(__name__)


def take(run: JobRun, seen: Sequence[Seen]) -> None:
    """Take in what pokes saw: it is counted and judged; groups that overran are poked apart.

    :raises Unreachable: when Redis does not answer.
    """
    if not seen:
        return
    failpoint("poke.after")
    reports, many = apart(seen)
    run.worker.metrics.poked(reports, many)
    run.worker.away.take(reports, many)
    run.worker.failing_pokes.take(reports)
    run.worker.failing_pokes.fail_no_more(many)
    overran, cannot = run.outcomes.take(reports, many)
    for report in cannot:
        run.worker.poker.cache.put_off(report.group.id, report.reason or "")
    if overran:
        log.warning("pokes overran their limit; they are poked apart from now on", groups=len(overran))
        run.suspect([report.group.id for report in overran], Suspicion.OVERRAN)
        in_a_row = overruns.count(run.worker.leases, run.settings, run.shard_range, overran)
        run.outcomes.take_overruns(overran, in_a_row)


def settle(runs: Sequence[JobRun]) -> None:
    """Settle the facts so far of the ranges of a job: together, because each flush has a price of its own.

    :raises Unreachable: when the database or Redis does not answer; what was not settled is due again.
    """
    handed_over = [(run, facts) for run in runs if (facts := run.outcomes.hand_over())]
    if not handed_over:
        return
    worker, trusted = runs[0].worker, runs[0].moment.trusted
    every = [fact for _, facts in handed_over for fact in facts]
    known = {group_id: each for run, _ in handed_over for group_id, each in run.outcomes.unsettled.items()}
    with worker.keeper.keeping(*(run.lease for run in runs)):
        done = worker.settler.settle(every, trusted, lambda _: known)
    for run, facts in handed_over:
        run.outcomes.settled(facts, done)
        if done.unsettled.keys() & {fact.group_id for fact in facts}:
            worker.leases.unsettled.keep(run.shard_range, run.outcomes.unsettled)
        done = done._replace(ended=0)  # they count for the first range
