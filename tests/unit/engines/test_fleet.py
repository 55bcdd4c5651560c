"""The life of simulated instances, one happening after the other."""

from __future__ import annotations

from collections import Counter

from windfall.engines.simulated.fleet import Fleet, InstanceEvent, InstanceStage, SimulatedInstance
from windfall.engines.simulated.market import Fate
from windfall.jobs.ids import EnvironmentName, InstanceId
from windfall.jobs.resources import Resources


def an_instance(
    fate: Fate, name: str = "i-1", stage: InstanceStage = InstanceStage.BOOTING
) -> SimulatedInstance:
    return SimulatedInstance(
        InstanceId(name), EnvironmentName("e"), "g5.xlarge", Resources(4, 1024), 0, fate, stage
    )


def happened(fleet: Fleet, now: int, *, can_boot: bool = True) -> list[InstanceEvent]:
    return [happening for happening, _ in fleet.advance(now, can_boot=can_boot)]


def test_a_whole_life_in_order():
    fleet = Fleet()
    instance = an_instance(Fate(ready_at=10, rebalance_at=20, notice_at=30, lost_at=150))
    fleet.add(instance)
    assert fleet.next_at(can_boot=True) == 10
    assert happened(fleet, 9) == []
    assert happened(fleet, 10) == [InstanceEvent.BOOTED]
    assert fleet.next_at(can_boot=True) == 20
    assert happened(fleet, 20) == [InstanceEvent.ADVISED]
    assert happened(fleet, 29) == []
    assert happened(fleet, 30) == [InstanceEvent.NOTICED]
    assert instance.fate.lost_at == 150
    assert happened(fleet, 150) == [InstanceEvent.GONE]
    assert (instance.stage, instance.gone_at, fleet.next_at(can_boot=True)) == (
        InstanceStage.GOING,
        150,
        None,
    )


def test_nothing_boots_while_there_is_no_agent():
    fleet = Fleet()
    fleet.add(an_instance(Fate(10)))
    assert happened(fleet, 99, can_boot=False) == []
    assert fleet.next_at(can_boot=False) is None


def test_a_notice_that_comes_late_is_whole():
    fleet = Fleet()
    instance = an_instance(Fate(10, 20, 30, 150), stage=InstanceStage.READY)
    fleet.add(instance)
    assert happened(fleet, 1_000) == [InstanceEvent.NOTICED]  # without a recommendation in the same breath
    assert instance.fate.lost_at == 1_120


def test_without_notice_it_is_gone_at_once():
    fleet = Fleet()
    fleet.add(an_instance(Fate(10, lost_at=30)))
    assert happened(fleet, 30) == [InstanceEvent.BOOTED, InstanceEvent.GONE]


def test_attempts_are_known_by_their_place():
    fleet = Fleet()
    instance = an_instance(Fate(10))
    fleet.add(instance)
    fleet.place("a#1", instance)
    fleet.place("b#1", instance)
    assert fleet.close("a#1") is instance
    assert fleet.close("a#1") is None
    assert instance.tokens == {"b#1"}
    fleet.remove(instance.id)
    assert fleet.close("b#1") is None
    fleet.remove(instance.id)


def test_stock_tells_what_lasts_from_what_goes():
    fleet = Fleet()
    fleet.add(an_instance(Fate(10)))
    fleet.add(an_instance(Fate(10, notice_at=20, lost_at=99), "i-2"))
    assert fleet.stock(EnvironmentName("e")).lasting == Counter({"g5.xlarge": 2})
    happened(fleet, 20)
    stock = fleet.stock(EnvironmentName("e"))
    assert (stock.lasting, stock.total) == (Counter({"g5.xlarge": 1}), 2)
    fleet.remove(InstanceId("i-2"))
    assert fleet.stock(EnvironmentName("e")).total == 1
    assert fleet.stock(EnvironmentName("other")).total == 0
