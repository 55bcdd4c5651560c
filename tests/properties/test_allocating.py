"""What is launched for equal jobs costs no more than any single type would that holds them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scheduling.builders import a_snapshot, an_offer, launched
from windfall.scheduling.launchable import times
from windfall.scheduling.planning import plan

TYPES = st.lists(
    st.tuples(
        st.integers(1, 96),
        st.integers(1, 400),
        st.sampled_from([0, 0, 1, 2, 4, 8]),
        st.integers(1, 4_000),
    ),
    min_size=1,
    max_size=8,
)


def offered(types):
    return tuple(
        an_offer(f"t{number}", vcpus=vcpus, memory_mib=1_024 * gib, gpus=gpus, usd_hour=cents / 100)
        for number, (vcpus, gib, gpus, cents) in enumerate(types)
    )


@given(TYPES, st.integers(1, 8), st.integers(1, 16), st.sampled_from([0, 0, 1, 2]), st.integers(1, 40))
def test_best_fit_progressive_costs_no_more_than_the_best_type_alone(types, vcpus, gib, gpus, count):
    offers = offered(types)
    environment = {"offers": offers, "allocation": "BEST_FIT_PROGRESSIVE", "max_vcpus": 10**6}
    cluster = a_snapshot().with_environment(**environment)
    cluster = cluster.with_waiting("a", vcpus, 1_024 * gib, gpus=gpus, count=count)
    decided = plan(cluster.snapshot())
    each = {one.type: times(cluster.job("a").shape, one.resources) or 0 for one in offers}
    alone = [-(-count // each[one.type]) * one.usd_hour for one in offers if each[one.type]]
    names = [type_ for _, type_ in launched(decided)]
    if not alone:
        assert names == []
        return
    prices = {one.type: one.usd_hour for one in offers}
    assert sum(prices[name] for name in names) <= min(alone) + 1e-6
    # Enough for all of them, and none that is not needed.
    held = [each[name] for name in names]
    assert sum(held) - min(held) < count <= sum(held)
    if count == 1:
        assert prices[names[0]] == min(alone)
