"""What each second of a job is counted as."""

from __future__ import annotations

import pytest

from tests.unit.accounting.builders import a_job, a_mark, an_attempt, an_interrupted, at, progress
from windfall.accounting.ledger import ledger_of, spent_usd
from windfall.accounting.prices import Rates
from windfall.jobs.attempts import Market


def seconds(entry):
    """The categories that are not zero, in seconds."""
    named = {
        name.removesuffix("_ms"): getattr(entry.times, name) for name in entry.times.__dataclass_fields__
    }
    return {name: spent / 1000 for name, spent in named.items() if spent}


def ledger(job, now=1000):
    return [seconds(entry) for entry in ledger_of(job, Rates(), at(now)).entries]


def test_a_job_that_just_ran():
    job = a_job(an_attempt(placed=5, started=7, stopped=67, exit_code=0), stopped=67)
    assert ledger(job) == [{"waiting": 5, "start_up": 2, "useful": 60}]


def test_a_job_that_never_ran_only_waited():
    assert ledger(a_job(), now=30) == [{"waiting": 30}]
    assert ledger(a_job(stopped=12), now=30) == [{"waiting": 12}]


def test_an_attempt_that_runs_now_counts_up_to_now():
    assert ledger(a_job(an_attempt(placed=5, started=7)), now=20) == [
        {"waiting": 5, "start_up": 2, "useful": 13}
    ]
    assert ledger(a_job(an_attempt(placed=5)), now=20) == [{"waiting": 5, "start_up": 15}]


def test_start_up_lasts_until_the_first_step_where_the_job_tells_it():
    told = an_attempt(placed=0, started=2, stopped=30, exit_code=0, progress=progress(9, first_step=10))
    assert ledger(a_job(told, stopped=30)) == [{"start_up": 10, "useful": 20}]


def test_without_a_checkpoint_an_interruption_loses_everything():
    first = an_interrupted(placed=0, started=10, stopped=50)
    second = an_attempt(2, placed=60, started=70, stopped=120, exit_code=0)
    assert ledger(a_job(first, second, stopped=120)) == [
        {"start_up": 10, "lost": 40},
        {"waiting": 10, "start_up": 10, "useful": 50},
    ]


def test_work_after_the_newest_checkpoint_is_lost():
    first = an_interrupted(placed=0, started=10, stopped=50, checkpoint=a_mark(state=35, committed=38))
    assert ledger(a_job(first), now=50) == [{"start_up": 10, "useful": 25, "lost": 15}]


def test_what_the_next_attempt_restored_decides_what_was_lost():
    newest = a_mark(state=45)
    older = a_mark(state=20)
    first = an_interrupted(placed=0, started=10, stopped=50, checkpoint=newest)
    second = an_attempt(2, placed=50, started=50, restored=older)
    assert ledger(a_job(first, second), now=60)[0] == {"start_up": 10, "useful": 10, "lost": 30}


def test_a_restart_from_nothing_loses_what_several_attempts_did():
    first = an_interrupted(placed=0, started=0, stopped=10, checkpoint=a_mark(10))
    second = an_interrupted(2, placed=10, started=10, stopped=20, restored=a_mark(10), checkpoint=a_mark(20))
    third = an_attempt(3, placed=20, started=20, stopped=30, exit_code=0)
    assert ledger(a_job(first, second, third, stopped=30)) == [{"lost": 10}, {"lost": 10}, {"useful": 10}]


def test_an_attempt_that_never_started_says_nothing_about_what_was_kept():
    first = an_interrupted(placed=0, started=0, stopped=10, checkpoint=a_mark(8))
    second = an_interrupted(2, placed=10, stopped=12)
    assert ledger(a_job(first, second), now=12) == [{"useful": 8, "lost": 2}, {"start_up": 2}]


def test_a_second_interruption_before_a_new_checkpoint_loses_only_its_own_work():
    mark = a_mark(10)
    first = an_interrupted(placed=0, started=0, stopped=10, checkpoint=mark)
    second = an_interrupted(2, placed=10, started=10, stopped=15, restored=mark)
    third = an_attempt(3, placed=15, started=15, stopped=30, exit_code=0, restored=mark)
    assert ledger(a_job(first, second, third, stopped=30)) == [{"useful": 10}, {"lost": 5}, {"useful": 15}]


def test_saving_holds_up_the_loop_for_as_long_as_the_job_says():
    told = an_attempt(
        placed=0, started=0, stopped=60, exit_code=0, progress=progress(100, first_step=5, stall_s=2.5)
    )
    assert ledger(a_job(told, stopped=60)) == [{"start_up": 5, "useful": 52.5, "checkpoint": 2.5}]


def test_a_save_on_notice_loses_nothing():
    """Held up for 2 s by saves, state captured at 40, committed at 43, gone at 44, released at 50."""
    first = an_interrupted(
        placed=0,
        started=0,
        stop=38,
        exited=44,
        stopped=50,
        checkpoint=a_mark(state=40, committed=43, step=400),
        progress=progress(400, first_step=0, stall_s=2),
    )
    assert ledger(a_job(first), now=50) == [{"useful": 38, "checkpoint": 5, "idle": 7}]


def test_steps_after_the_last_save_are_lost_even_when_it_is_recent():
    first = an_interrupted(
        placed=0,
        started=0,
        exited=44,
        stopped=44,
        checkpoint=a_mark(state=40, committed=43, step=400),
        progress=progress(410, first_step=0),
    )
    assert ledger(a_job(first), now=44) == [{"useful": 40, "lost": 4}]


def test_the_final_flush_is_saving_and_what_follows_it_is_idle():
    first = an_interrupted(
        placed=0, started=0, exited=40, stopped=50, checkpoint=a_mark(state=39, committed=46)
    )
    assert ledger(a_job(first), now=50) == [{"useful": 39, "lost": 1, "checkpoint": 6, "idle": 4}]
    plain = an_interrupted(placed=0, started=0, exited=40, stopped=50)
    assert ledger(a_job(plain), now=50) == [{"lost": 40, "idle": 10}]


def test_results_are_saved_after_a_good_end():
    ended = an_attempt(placed=0, started=0, exited=40, stopped=50, exit_code=0)
    assert ledger(a_job(ended, stopped=50)) == [{"useful": 40, "checkpoint": 10}]


def test_waiting_after_the_last_attempt_is_an_entry_of_its_own():
    first = an_interrupted(placed=0, started=0, stopped=10)
    assert ledger(a_job(first), now=25) == [{"lost": 10}, {"waiting": 15}]


@pytest.mark.parametrize("stall_s", [float("inf"), float("nan"), -5.0, 1e300])
def test_a_stall_that_cannot_be_is_bounded_by_the_work(stall_s):
    told = an_attempt(placed=0, started=0, stopped=60, exit_code=0, progress=progress(1, 0, stall_s))
    (entry,) = ledger_of(a_job(told, stopped=60), Rates(), at(60)).entries
    assert entry.times.wall_ms == 60_000
    assert entry.times.checkpoint_ms in (0, 60_000)


def test_costs_are_by_category_and_add_up():
    first = an_interrupted(
        placed=0,
        started=900,
        stopped=3600,
        checkpoint=a_mark(1800),
        usd_hour=1.0,
        on_demand_usd_hour=4.0,
    )
    (entry,) = ledger_of(a_job(first, stopped=3600), Rates(), at(3600)).entries
    assert entry.paid_usd == pytest.approx(1.0)
    assert entry.on_demand_usd == pytest.approx(4.0)
    assert entry.usd_for("start_up") == pytest.approx(0.25)
    assert entry.usd_for("useful") == pytest.approx(0.25)
    assert entry.usd_for("lost") == pytest.approx(0.5)


def test_what_was_spent_so_far():
    first = an_interrupted(placed=0, started=0, stopped=1800, usd_hour=1.0)
    second = an_attempt(2, placed=3600, started=3600, market=Market.ON_DEMAND, usd_hour=4.0)
    assert spent_usd(a_job(first, second), Rates(), at(7200)) == pytest.approx(4.5)
    assert spent_usd(a_job(an_attempt(placed=0)), Rates(), at(3600)) == 0.0
