"""The outlook that a job leaves for beat: for how long nothing of its range is due, and whether the job was short."""

import math
import time

from sensorpool.leases.range_marks import NO_MARKS, Outlook, most_together
from sensorpool.model.values import Milliseconds
from sensorpool.worker.job_run import JobRun

MOST_TOGETHER = 20_000  # groups that are due: with more, each range of a job is sent on as a job of its own
_USUAL = {"sparse"}  # groups that adaptive intervals passed over are due again in their next period
_LIGHT = 0.5  # seconds: a longer job is not light
_LIGHT_KEPT = 3  # ticks


def outlook(job_run: JobRun) -> Outlook:
    """Return the marks for a range whose job ends now."""
    state, held, result, tick_ms = job_run.held.state, job_run.held, job_run.result, job_run.settings.tick_ms
    exceptional = result.extra.keys() - _USUAL
    if state.left or state.stranded or held.suspects or exceptional or not job_run.moment.trusted:
        return NO_MARKS
    # of ranges in which many groups are due, so many share a job that none has to be sent on
    share = most_together(job_run.settings.tick) * len(job_run.loaded.units) / MOST_TOGETHER
    took = math.ceil(max(result.seconds, share) * 1000)
    span, left = _quiet(job_run)
    is_light = result.seconds <= _LIGHT
    return Outlook(span, left, took, left + _LIGHT_KEPT * tick_ms if is_light else 0)


def _quiet(job_run: JobRun) -> tuple[Milliseconds, Milliseconds]:
    """Return the span from the load to the next group that is due, and what is left of it; zeros: not worth a mark."""
    loaded = job_run.loaded
    waits = job_run.infra.since or job_run.held.unsettled or job_run.outcomes.may_hurry
    if loaded.next_due is None or waits:
        return 0, 0
    span = loaded.next_due - loaded.now
    left = span - math.ceil((time.monotonic() - job_run.moment.monotonic) * 1000)
    return (span, left) if left > job_run.settings.tick_ms // 2 else (0, 0)
