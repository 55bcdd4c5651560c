"""What the rows of a bill may claim."""

from __future__ import annotations

import pytest

from tests.unit.accounting.builders import a_job, an_attempt, an_interrupted, at
from windfall.accounting.ledger import Sum, ledger_of
from windfall.accounting.prices import Rates


def a_sum(*jobs):
    total = Sum()
    for job in jobs:
        for entry in ledger_of(job, Rates(), at(3600)).entries:
            total.add(job.id, entry)
    return total


PRICED = a_job(
    an_interrupted(placed=0, started=0, stopped=3600, usd_hour=1.0, on_demand_usd_hour=4.0), stopped=3600
)
UNPRICED = a_job(an_attempt(placed=0, started=0, stopped=1800, exit_code=0), stopped=1800, id="other")


def test_what_has_no_price_is_counted_apart():
    total = a_sum(PRICED, UNPRICED)
    assert total.paid_usd == pytest.approx(1.0)
    assert total.unpriced_ms == 1_800_000
    assert total.times.held_ms == 5_400_000
    assert (len(total.jobs), total.attempts) == (2, 2)


def test_savings_compare_what_has_both_prices():
    only_paid = a_job(
        an_interrupted(placed=0, started=0, stopped=3600, usd_hour=7.0), stopped=3600, id="third"
    )
    assert a_sum(PRICED, only_paid).saved_percent == pytest.approx(75.0)
    assert a_sum(only_paid).saved_percent is None
    assert a_sum(UNPRICED).saved_percent is None
    assert a_sum().saved_percent is None


def test_costs_by_category_add_up_to_what_was_paid():
    total = a_sum(PRICED, UNPRICED)
    assert sum(total.usd_by_category.values()) == pytest.approx(total.paid_usd)
    assert total.usd_by_category["lost"] == pytest.approx(1.0)


def test_a_sum_of_sums_is_the_sum_of_all():
    both, apart = a_sum(PRICED, UNPRICED), a_sum(PRICED)
    apart.include(a_sum(UNPRICED))
    assert apart == both
