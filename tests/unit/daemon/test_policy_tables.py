"""Tables for deadlines are solved beside the loop, once, and found again."""

from __future__ import annotations

from tests.waiting import wait_until
from windfall.daemon.policy_tables import PolicyTables, rounded
from windfall.deadlines.solving import PolicyTerms

TERMS = PolicyTerms(changeover_s=50, shield_s=100, spot_price=0.31, tick_s=64, work_ticks=6, slack_ticks=12)


def test_a_table_is_solved_by_another_process_and_keeps_the_exact_shield():
    tables = PolicyTables()
    assert tables(TERMS) is None
    table = wait_until(lambda: tables(TERMS), "a table")
    assert (table.terms.shield_s, table.terms.tick_s) == (100, 64)
    assert len(table.idle_actions) == 6


def test_a_solver_that_is_killed_is_told_once_and_deadlines_go_on_without(caplog):
    tables = PolicyTables()
    tables(TERMS)
    tables._solving.process.kill()
    wait_until(lambda: caplog.records or tables(TERMS), "the warning")
    assert "steady progress is used instead" in caplog.text
    assert tables(TERMS) is None
    assert tables._solving is None


def test_terms_that_differ_a_little_share_a_table():
    assert rounded(TERMS) == rounded(
        PolicyTerms(changeover_s=60, shield_s=120, spot_price=0.28, tick_s=64, work_ticks=6, slack_ticks=12)
    )
    assert rounded(TERMS).changeover_s == 64
