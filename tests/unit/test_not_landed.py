"""Many pokes that found nothing, as one value: whoever takes it does what it would do with a report for each."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorpool import Settings
from sensorpool.leases.poke_log import Poked, Record, latest_pokes
from sensorpool.model.not_landed import NotLanded, Seen, apart, each_report, not_landed, number_of
from sensorpool.model.states import Outcome
from sensorpool.model.trouble import Trouble
from sensorpool.model.values import JobResult, Report, ShardRange
from sensorpool.worker.finisher import Batch, Finisher
from sensorpool.worker.load import Moment
from sensorpool.worker.metrics import Metrics
from tests.support.builders import START, due_group

BEGAN = 100.0  # the load, by the monotonic clock
SETTINGS = Settings.load(infra_failure_window=60)


@st.composite
def values(draw: st.DrawFn) -> NotLanded:
    """Pokes in a row, of groups with and without deadlines, some of which have passed."""
    deadlines = draw(st.lists(st.none() | st.integers(START - 50, START + 200), min_size=1, max_size=20))
    members = draw(st.integers(1, 3))
    intervals = draw(st.sampled_from([(5_000,), (5_000, 3_600_000)]))
    groups = [
        due_group(n, next_deadline=at, members=members, poke_interval=intervals[n % len(intervals)])
        for n, at in enumerate(deadlines, 1)
    ]
    step = draw(st.sampled_from([0.0, 1e-5, 1e-2]))
    return not_landed(groups, [BEGAN + n * step for n in range(len(groups))], draw(st.sampled_from([0.0, 1e-5, 0.25])))


def took(seen: list[Seen], *, trusted: bool, fails: bool) -> tuple[Any, ...]:
    """Return what a job makes of what pokes saw."""
    nobody: Any = SimpleNamespace(take=lambda *_: None)
    nothing: Any = None
    finisher = Finisher(SETTINGS, nothing, nothing, nothing, Metrics(), nobody, nobody)
    known = {1: Trouble(failing_since=START)} if fails else {}
    batch = Batch(ShardRange(0, 10), Moment(START, BEGAN, trusted), known, JobResult(), Record(START))
    finisher.take(batch, seen)
    pokes: dict[int, Poked] = latest_pokes(batch.record.texts().values(), set(range(100)))
    return (batch.facts, batch.result, batch.troubles, batch.changed, batch.last_began, len(batch.record), pokes)


@given(values(), st.booleans(), st.booleans())
def test_a_job_makes_the_same_of_it(many: NotLanded, trusted: bool, fails: bool) -> None:
    assert took([many], trusted=trusted, fails=fails) == took([*many.reports()], trusted=trusted, fails=fails)


@given(values())
def test_it_is_taken_apart(many: NotLanded) -> None:
    single = Report(due_group(99), BEGAN, Outcome.LANDED)
    seen: list[Seen] = [single, many]
    assert apart(seen) == ([single], [many])
    assert each_report(seen) == [single, *many.reports()]
    assert number_of(seen) == 1 + len(many.groups)
    assert {report.outcome for report in many.reports()} == {Outcome.NOT_LANDED}


@given(values())
def test_its_record_says_how_long_a_poke_took(many: NotLanded) -> None:
    record = Record(START)
    record.add_not_landed(many, [0] * len(many.ids))
    pokes = latest_pokes(record.texts().values(), set(many.ids))
    assert {poked.seconds for poked in pokes.values()} == {many.seconds if many.seconds > 0.001 else 0.0}


@pytest.mark.parametrize("seconds", [0.0, 1e-5, 0.3])
def test_metrics_count_the_same(seconds: float) -> None:
    many = not_landed([due_group(n) for n in range(1, 6)], [BEGAN] * 5, seconds)
    counted = []
    given_: Any
    for given_ in (([], [many]), (many.reports(), [])):
        metrics = Metrics()
        metrics.start()
        metrics.know(lambda ids: [("pkg.Class", f"backend {n % 2}") for n in ids])
        metrics.poked(*given_)
        counted.append(
            {
                (each.name, *sorted(each.labels.items())): pytest.approx(each.value)
                for metric in metrics.registry.collect()
                for each in metric.samples
                if not each.name.endswith("_created")
            }
        )
    assert counted[0] == counted[1]
    assert counted[0][("sensorpool_pokes_total",)] == 5
