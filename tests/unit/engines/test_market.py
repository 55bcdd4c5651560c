"""The simulated market: fates from a seed, a script or a trace, the same whenever they are asked for."""

from __future__ import annotations

import pytest

from windfall.capacity.environments import ComputeEnvironment, Provisioning
from windfall.capacity.market_tags import MarketTags
from windfall.engines.simulated.errors import BadTrace
from windfall.engines.simulated.market import Fate, SpotMarket, market_of
from windfall.engines.simulated.settings import SimulatedSettings
from windfall.engines.simulated.traces import AvailabilityTrace, parse_trace, read_trace
from windfall.jobs.ids import EnvironmentName, InstanceId

CALM = SimulatedSettings(boot_s=10, mtbi_s=1000, notice_s=120, rebalance=0)


def a_market(tags: MarketTags | None = None, settings: SimulatedSettings = CALM, **more) -> SpotMarket:
    return SpotMarket(tags or MarketTags(), settings, **{"spot": True, **more})


def lives(market: SpotMarket, count: int = 2_000) -> list[int]:
    fates = [market.fate(InstanceId(f"i-{n}"), "g5.xlarge", 1, 0) for n in range(count)]
    return [fate.lost_at - fate.ready_at for fate in fates]


def test_on_demand_capacity_stays():
    assert a_market(spot=False).fate(InstanceId("i-1"), "g5.xlarge", 1, 5_000) == Fate(15_000)


def test_lives_follow_the_mean_and_end_with_a_whole_notice():
    market = a_market()
    found = [life - 120_000 for life in lives(market)]
    assert 900_000 < sum(found) / len(found) < 1_100_000
    # As many die young as an exponential law has it: 1 - exp(-0.1) of them in a tenth of the mean.
    assert 0.07 < sum(life < 100_000 for life in found) / len(found) < 0.12
    fate = market.fate(InstanceId("i-1"), "g5.xlarge", 1, 0)
    assert fate.lost_at - fate.notice_at == 120_000


def test_the_same_seed_is_the_same_market_and_another_is_not():
    again, other = a_market(MarketTags(seed=1)), a_market(MarketTags(seed=2))
    assert lives(a_market(MarketTags(seed=1)), 50) == lives(again, 50)
    assert lives(again, 50) != lives(other, 50)


def test_speed_divides_every_duration():
    slow, fast = a_market(), a_market(settings=SimulatedSettings(10, 1000, 120, speed=10, rebalance=0))
    one, ten = (market.fate(InstanceId("i-1"), "t", 1, 0) for market in (slow, fast))
    assert (ten.ready_at, ten.lost_at - ten.notice_at) == (1_000, 12_000)
    assert ten.notice_at == pytest.approx(one.notice_at / 10, abs=2)


def test_types_have_means_of_their_own():
    market = a_market(MarketTags(mtbi_of={"p3": 10}))
    assert (market.safety("p3.2xlarge", 0), market.safety("g5.xlarge", 0)) == (10, 1000)


def test_a_script_counts_instances_from_their_launch():
    market = a_market(MarketTags(interrupt_at_s=(20, 5)))
    ends = [market.fate(InstanceId(f"i-{n}"), "t", n, 1_000).notice_at for n in (1, 2, 3)]
    # The second would be taken before it has booted: not before it is ready.
    assert ends == [21_000, 11_000, None]
    assert market.safety("t", 0) is None


def test_some_go_without_notice():
    market = a_market(MarketTags(sudden=0.25))
    fates = [market.fate(InstanceId(f"i-{n}"), "t", 1, 0) for n in range(1_000)]
    sudden = [fate for fate in fates if fate.notice_at is None]
    assert 200 < len(sudden) < 300
    assert all(fate.lost_at is not None and fate.rebalance_at is None for fate in sudden)


def test_a_recommendation_comes_between_boot_and_notice():
    settings = SimulatedSettings(boot_s=10, mtbi_s=100, rebalance=0.5, rebalance_lead_s=300)
    fates = [a_market(settings=settings).fate(InstanceId(f"i-{n}"), "t", 1, 0) for n in range(1_000)]
    advised = [fate for fate in fates if fate.rebalance_at is not None]
    assert 400 < len(advised) < 600
    assert all(fate.ready_at <= fate.rebalance_at <= fate.notice_at for fate in advised)


# Traces ---------------------------------------------------------------------------------------------------

WAVES = AvailabilityTrace(10, (2, 2, 0, 1, 3), (1.0, 1.5, 2.0, 2.5, 3.0))


def test_a_trace_bounds_capacity_and_names_the_price_and_begins_again():
    market = a_market(trace=WAVES, opened_at=1_000)
    assert [market.capacity("t", 1_000 + 10_000 * n) for n in range(6)] == [2, 2, 0, 1, 3, 2]
    assert market.price("t", 21_000) == 2.0
    assert market.capacity("t", 0) == 2  # before it was declared: a clock that stepped back
    assert market.fate(InstanceId("i-1"), "t", 1, 0) == Fate(10_000)
    assert market.next_step_at("t", 4_000) == 11_000
    assert a_market().next_step_at("t", 0) is None


def test_a_trace_is_faster_with_the_market():
    market = a_market(settings=SimulatedSettings(speed=100), trace=WAVES)
    assert [market.capacity("t", 100 * n) for n in range(5)] == list(WAVES.counts)
    assert market.next_step_at("t", 30) == 100


def test_a_fall_takes_the_newest_or_whom_the_seed_hits():
    running = [(at, InstanceId(f"i-{at}")) for at in range(6)]
    assert a_market().taken_back(running, 4) == ["i-5", "i-4"]
    assert a_market().taken_back(running, 6) == a_market().taken_back(running, 9) == []
    hit = a_market(MarketTags(seed=3)).taken_back(running, 3)
    assert len(set(hit)) == 3
    assert hit == a_market(MarketTags(seed=3)).taken_back(running, 3)


def test_with_a_seed_types_begin_at_different_places_of_the_trace():
    long = AvailabilityTrace(10, tuple(range(1_000)))
    market = a_market(MarketTags(seed=3), trace=long)
    assert len({market.capacity(type_, 0) for type_ in ("a", "b", "c", "d")}) > 1
    assert {a_market(trace=long).capacity(type_, 0) for type_ in ("a", "b")} == {0}


def test_a_pool_is_the_safer_the_longer_it_has_been_quiet():
    assert [WAVES.calm_s(10.0 * n) for n in range(5)] == [0, 10, 0, 10, 20]
    assert AvailabilityTrace(10, (4, 4)).calm_s(0) == 20  # never fell


def test_an_instance_taken_by_a_trace_has_a_whole_notice_from_now():
    assert a_market(trace=WAVES).end_now(InstanceId("i-1"), 5, 70_000) == Fate(5, None, 70_000, 190_000)


def test_a_trace_file_is_read(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text('{"metadata": {"gap_seconds": 600, "zone": "a"}, "data": [16, 3]}')
    assert read_trace(str(path)) == AvailabilityTrace(600, (16, 3))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"{", "is not a trace"),
        (b'{"data": [1]}', "metadata.gap_seconds"),
        (b'{"metadata": {"gap_seconds": 0}, "data": [1]}', "is not a trace"),
        (b'{"metadata": {"gap_seconds": 9}, "data": []}', "is not a trace"),
        (b'{"metadata": {"gap_seconds": 9}, "data": [-1]}', "is not a trace"),
        (b'{"metadata": {"gap_seconds": 9}, "data": [1, 2], "prices": [1]}', "1 prices for 2 ticks"),
    ],
)
def test_what_is_no_trace_is_refused(content, text):
    with pytest.raises(BadTrace) as refused:
        parse_trace(content, "/a/file")
    assert text in str(refused.value)
    assert "/a/file" in str(refused.value)


def test_a_file_that_is_not_there_or_no_file_is_refused(tmp_path):
    with pytest.raises(BadTrace, match="cannot be read by the daemon"):
        read_trace(str(tmp_path / "none"))
    with pytest.raises(BadTrace, match="is not a file"):
        read_trace(str(tmp_path))


def test_a_market_is_spot_as_its_environment_is():
    for kind, spot in (
        (Provisioning.SPOT, True),
        (Provisioning.FARGATE_SPOT, True),
        (Provisioning.EC2, False),
    ):
        environment = ComputeEnvironment(EnvironmentName("e"), kind, 0, 4, created_at=9)
        market = market_of(environment, MarketTags(), CALM, None)
        assert (market.spot, market.opened_at) == (spot, 9)
