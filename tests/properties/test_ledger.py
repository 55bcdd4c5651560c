"""Whatever an attempt's time stamps say, the ledger's parts are never negative and add up to the wall clock."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from windfall.accounting.ledger import CATEGORIES, HELD, Sum, in_category, ledger_of, spent_usd
from windfall.accounting.prices import Rates, billable_seconds, training_seconds
from windfall.jobs.attempts import Attempt, Market, StopCause
from windfall.jobs.ids import JobId, attempt_token, task_id
from windfall.jobs.job import Job, Submission
from windfall.jobs.resources import Resources
from windfall.jobs.retry import RetryStrategy
from windfall.jobs.staging import Mark, Progress
from windfall.jobs.states import JobState

START = 1_700_000_000_000
#: Mostly within the hour, some far off: clocks are set, and some stamps are another machine's.
TIMES = st.one_of(
    st.integers(START, START + 3_600_000), st.integers(START - 10**9, START + 10**9), st.integers(0, 2**53)
)
MAYBE = st.none() | TIMES
STEPS = st.none() | st.integers(0, 5)
USD = st.none() | st.floats(0, 200, allow_nan=False)
MARKS = st.builds(Mark, st.just("m"), TIMES, TIMES, st.integers(0, 10**12), STEPS)
PROGRESS = st.builds(
    Progress, TIMES, STEPS, MAYBE, STEPS, STEPS, st.floats(allow_nan=True, allow_infinity=True)
)


@st.composite
def attempts(draw, number):
    token = attempt_token(JobId("job"), number)
    return Attempt(
        number,
        token,
        task_id(token, START),
        "ce",
        "i-1",
        (),
        "log",
        draw(TIMES),
        started_at=draw(MAYBE),
        stopped_at=draw(MAYBE),
        stop_at=draw(MAYBE),
        stop_cause=draw(st.none() | st.sampled_from(StopCause)),
        exit_code=draw(st.sampled_from([None, 0, 1, 143])),
        prepared_at=draw(MAYBE),
        exited_at=draw(MAYBE),
        restored=draw(st.none() | MARKS),
        checkpoint=draw(st.none() | MARKS),
        progress=draw(st.none() | PROGRESS),
        market=draw(st.sampled_from(Market)),
        usd_hour=draw(USD),
        on_demand_usd_hour=draw(USD),
    )


@st.composite
def jobs(draw):
    count = draw(st.integers(0, 4))
    return Job(
        JobId("job"),
        Submission("train", "queue", "work:1", Resources(4, 1024, draw(st.integers(0, 2))), RetryStrategy()),
        draw(st.sampled_from(JobState)),
        draw(TIMES),
        stopped_at=draw(MAYBE),
        attempts=[draw(attempts(number + 1)) for number in range(count)],
    )


RATES = st.builds(Rates, st.sampled_from([0.0, 2.0]), st.sampled_from([0.0, 0.05]), st.floats(0, 1))


@given(jobs(), RATES, TIMES)
def test_the_parts_add_up_to_the_wall_clock(job, rates, now):
    end = now if job.stopped_at is None else job.stopped_at
    ledger = ledger_of(job, rates, now)
    for entry in ledger.entries:
        assert all(in_category(entry.times, category) >= 0 for category in CATEGORIES), entry.times
    assert ledger.times.wall_ms == max(0, end - job.created_at)
    assert sum(in_category(ledger.times, category) for category in CATEGORIES) == ledger.times.wall_ms


@given(jobs(), RATES, TIMES)
def test_every_attempt_has_one_entry_in_order(job, rates, now):
    entries = ledger_of(job, rates, now).entries
    told = [entry.attempt for entry in entries if entry.attempt is not None]
    assert told == job.attempts
    assert len(entries) - len(told) <= 1


@given(jobs(), RATES, TIMES, TIMES)
def test_a_finished_job_costs_the_same_at_any_time(job, rates, now, later):
    if job.stopped_at is not None:
        assert ledger_of(job, rates, now) == ledger_of(job, rates, later)


@given(jobs(), RATES, TIMES, st.integers(0, 10**9))
def test_what_is_spent_never_shrinks(job, rates, now, more):
    assert spent_usd(job, rates, now + more) >= spent_usd(job, rates, now) * (1 - 1e-9)


@given(jobs(), RATES, TIMES)
def test_money_adds_up(job, rates, now):
    total = Sum()
    for entry in ledger_of(job, rates, now).entries:
        total.add(job.id, entry)
    assert math.isclose(sum(total.usd_by_category[one] for one in HELD), total.paid_usd, abs_tol=1e-9)
    assert math.isclose(total.paid_usd, spent_usd(job, rates, now), abs_tol=1e-9)
    assert total.unpriced_ms <= total.times.held_ms


@given(jobs(), TIMES, st.floats(0, 1))
def test_billable_seconds_are_between_one_and_the_training_seconds(job, now, spot_factor):
    training = training_seconds(job.attempts, now)
    billable = billable_seconds(job.attempts, now, spot_factor)
    assert (training is None) == (billable is None) == (not job.attempts)
    if training is not None and billable is not None:
        assert 1 <= billable <= training
