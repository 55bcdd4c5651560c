"""What an hour costs, and what is never made up."""

from __future__ import annotations

import pytest

from tests.unit.accounting.builders import an_attempt
from windfall.accounting.prices import HourPrice, Rates, price_factor, price_of
from windfall.jobs.attempts import Market
from windfall.jobs.resources import Resources

GPUS = Resources(8, 1024, 2)
CPUS = Resources(8, 1024)
OWN = Rates(usd_gpu_hour=2.0, usd_vcpu_hour=0.05, spot_factor=0.25)


@pytest.mark.parametrize(
    ("attempt", "resources", "rates", "price"),
    [
        # As it was priced at its placement.
        ({"market": Market.SPOT, "usd_hour": 1.0, "on_demand_usd_hour": 3.0}, GPUS, OWN, (1.0, 3.0)),
        ({"usd_hour": 3.0, "on_demand_usd_hour": 3.0}, GPUS, OWN, (3.0, 3.0)),
        # One of the two is known.
        ({"market": Market.SPOT, "usd_hour": 1.0}, GPUS, OWN, (1.0, None)),
        ({"usd_hour": 3.0}, GPUS, OWN, (3.0, 3.0)),
        ({"market": Market.SPOT, "on_demand_usd_hour": 4.0}, GPUS, OWN, (1.0, 4.0)),
        ({"on_demand_usd_hour": 4.0}, GPUS, OWN, (4.0, 4.0)),
        # By the owner's own rates.
        ({}, GPUS, OWN, (4.0, 4.0)),
        ({"market": Market.SPOT}, GPUS, OWN, (1.0, 4.0)),
        ({}, CPUS, OWN, (0.4, 0.4)),
        # Nobody knows.
        ({}, GPUS, Rates(), (None, None)),
        ({"market": Market.SPOT}, CPUS, Rates(), (None, None)),
        ({}, GPUS, Rates(usd_vcpu_hour=0.05), (None, None)),
        ({}, CPUS, Rates(usd_gpu_hour=2.0), (None, None)),
    ],
)
def test_the_price_of_a_place(attempt, resources, rates, price):
    found = price_of(an_attempt(**attempt), resources, rates)
    assert found == HourPrice(*(one if one is None else pytest.approx(one) for one in price))


@pytest.mark.parametrize(
    ("attempt", "factor"),
    [
        ({"usd_hour": 1.0, "on_demand_usd_hour": 3.0}, 1.0),
        ({"market": Market.SPOT, "usd_hour": 1.0, "on_demand_usd_hour": 4.0}, 0.25),
        ({"market": Market.SPOT, "usd_hour": 9.0, "on_demand_usd_hour": 4.0}, 1.0),
        ({"market": Market.SPOT, "usd_hour": 1.0}, 0.3),
        ({"market": Market.SPOT, "usd_hour": 1.0, "on_demand_usd_hour": 0.0}, 0.3),
        ({"market": Market.SPOT}, 0.3),
    ],
)
def test_the_share_of_the_on_demand_price(attempt, factor):
    assert price_factor(an_attempt(**attempt), 0.3) == pytest.approx(factor)
