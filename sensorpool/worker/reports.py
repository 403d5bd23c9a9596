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


def settle(run: JobRun) -> None:
    """Settle the facts so far.

    :raises Unreachable: when the database or Redis does not answer; what was not settled is due again.
    """
    facts = run.outcomes.hand_over()
    if not facts:
        return
    with run.worker.keeper.keeping(run.lease):
        done = run.worker.settler.settle(facts, run.moment.trusted, lambda _: run.outcomes.unsettled)
    run.outcomes.settled(facts, done)
    if done.unsettled:
        run.worker.leases.unsettled.keep(run.shard_range, run.outcomes.unsettled)
