"""When a GPU is sick, when its job must leave, and when it is well again."""

from __future__ import annotations

import msgspec
import pytest

from windfall.agent.devices.health import Case, Judge
from windfall.agent.devices.readings import HealthRules, Reading
from windfall.agent.devices.xids import XIDS
from windfall.agent.gpus import GpuDevice

MINUTE = 60_000
START = 1_800_000_000_000


class Ward:
    """A judge and a clock."""

    def __init__(self, **rules: float) -> None:
        self.judge = Judge(HealthRules(**rules))
        self.now = START

    def sees(self, *readings: Reading, after_ms: int = 5_000) -> list[GpuDevice]:
        self.now += after_ms
        return self.judge.hear(readings, self.now)

    def sees_one(self, after_ms: int = 5_000, **facts: object) -> GpuDevice:
        [device] = self.sees(a_gpu(**facts), after_ms=after_ms)
        return device


def a_gpu(device_id: str = "GPU-a", **facts: object) -> Reading:
    return Reading(device_id, "NVIDIA H200", 143_771, driver="580.159", **facts)  # type: ignore[arg-type] # any field


def test_a_gpu_that_is_well_has_nothing_to_tell():
    device = Ward().sees_one(uncorrected_errors=0, corrected_errors=0, recovery="none", sharing="mps")
    assert device == GpuDevice("GPU-a", "NVIDIA H200", 143_771, sharing="mps", driver="580.159")


def test_a_gpu_that_vanishes_is_lost_and_well_again_some_time_after_it_is_back():
    ward = Ward(calm_s=60)
    ward.sees(a_gpu("GPU-a"), a_gpu("GPU-b"))
    a, b = ward.sees(a_gpu("GPU-a"))
    assert a.fence is None
    assert (b.id, b.lost, b.evacuate) == ("GPU-b", True, True)
    assert "does not answer" in (b.fence or "")
    a, b = ward.sees(a_gpu("GPU-a"), a_gpu("GPU-b"))
    assert not b.lost
    assert b.fence is not None, "it has only just come back"
    a, b = ward.sees(a_gpu("GPU-a"), a_gpu("GPU-b"), after_ms=MINUTE)
    assert b.fence is None


@pytest.mark.parametrize("code", sorted(code for code, xid in XIDS.items() if xid.needs_reset))
def test_an_xid_of_a_sick_device_fences_it_and_moves_its_job(code: int):
    device = Ward().sees_one(xids=(code,))
    assert device.evacuate
    assert f"XID {code}: " in (device.fence or "")
    assert "2027-01-15 08:00:05 UTC" in (device.fence or ""), "when, so that a later one is told apart"


@pytest.mark.parametrize("code", [13, 31, 43, 45, 63, 92, 94, 9999])
def test_other_xids_are_noted_for_a_while(code: int):
    ward = Ward(calm_s=60)
    device = ward.sees_one(xids=(code,))
    assert device.fence is None
    assert [note.partition(" lately")[0] for note in device.notes] == [f"XID {code}"]
    assert ward.sees_one().notes == device.notes, "nothing new is nothing to tell"
    assert ward.sees_one(after_ms=MINUTE).notes == ()


def test_only_a_reset_heals_what_needs_one():
    ward = Ward(calm_s=60)
    ward.sees_one(xids=(119,))
    assert ward.sees_one(after_ms=60 * MINUTE).fence is not None
    ward.sees_one(lost=True)
    assert ward.sees_one().fence is not None, "the reset has only just been seen"
    assert ward.sees_one(after_ms=MINUTE).fence is None


def test_a_driver_that_asks_for_nothing_more_ends_the_fence():
    ward = Ward(calm_s=60)
    assert ward.sees_one(xids=(95,), recovery="reset").fence is not None
    assert ward.sees_one(recovery="reset", after_ms=10 * MINUTE).evacuate
    assert ward.sees_one(recovery="none").fence is not None
    assert ward.sees_one(recovery="none", after_ms=MINUTE).fence is None


def test_a_driver_that_wants_to_drain_lets_the_job_end():
    device = Ward().sees_one(recovery="drain")
    assert device.fence is not None
    assert not device.evacuate


def test_uncorrected_errors_count_from_when_they_were_first_seen():
    ward = Ward(calm_s=60)
    device = ward.sees_one(uncorrected_errors=3)
    assert device.fence is None
    assert device.notes == ("uncorrected memory errors since the driver was loaded",)
    device = ward.sees_one(uncorrected_errors=4)
    assert device.evacuate
    assert ward.sees_one(uncorrected_errors=4, after_ms=10 * MINUTE).fence == device.fence
    ward.sees_one(uncorrected_errors=0)
    assert ward.sees_one(uncorrected_errors=0, after_ms=MINUTE).fence is None, (
        "counters begin anew at a reset"
    )


def test_a_slow_gpu_is_noted_and_fenced_only_when_that_lasts():
    ward = Ward(slow_s=600, calm_s=60)
    device = ward.sees_one(slowdowns=("power brake",))
    assert (device.fence, device.notes) == (None, ("slowed down: power brake",))
    device = ward.sees_one(slowdowns=("power brake",), after_ms=10 * MINUTE)
    assert device.fence is not None
    assert not device.evacuate, "its job goes on"
    ward.sees_one()
    assert ward.sees_one(after_ms=MINUTE).fence is None
    assert ward.sees_one(slowdowns=("power brake",)).fence is None, "the time counts anew"


def test_a_gpu_about_to_switch_itself_off_gets_no_new_job():
    ward = Ward(calm_s=60)
    assert ward.sees_one(temperature_c=91, shutdown_c=95).fence is None
    assert "switch itself off" in (ward.sees_one(temperature_c=92, shutdown_c=95).fence or "")


def test_a_row_that_waits_for_a_reset_is_noted_and_one_that_cannot_be_replaced_is_fenced():
    assert Ward().sees_one(remap_pending=True).fence is None
    assert Ward().sees_one(remap_pending=True).notes == (
        "a bad row of its memory is replaced at the next reset",
    )
    assert Ward().sees_one(remap_failed=True).evacuate


def test_a_gpu_that_nothing_can_run_on_is_free_at_once_when_something_can():
    ward = Ward()
    assert ward.sees_one(unusable="MIG is on and it has no slice").fence is not None
    assert ward.sees_one().fence is None


def test_a_gpu_that_is_divided_is_not_lost():
    ward = Ward()
    ward.sees(a_gpu("GPU-a"), a_gpu("GPU-b"))
    devices = ward.sees(a_gpu("GPU-a"), a_gpu("MIG-1", parent="GPU-b"), a_gpu("MIG-2", parent="GPU-b"))
    assert [device.id for device in devices] == ["GPU-a", "MIG-1", "MIG-2"]
    devices = ward.sees(a_gpu("GPU-a"), a_gpu("MIG-3", parent="GPU-b"))
    assert [device.id for device in devices] == ["GPU-a", "MIG-3"]
    assert [device.id for device in ward.sees(a_gpu("GPU-a"), a_gpu("GPU-b"))] == ["GPU-a", "GPU-b"]
    assert [device.lost for device in ward.sees(a_gpu("GPU-a"))] == [False, True]


def test_a_second_illness_is_told_from_one_that_was_forgiven():
    ward = Ward()
    first = ward.sees_one(xids=(79,))
    assert ward.sees_one().fence == first.fence
    assert ward.sees_one(xids=(79,)).fence != first.fence


def test_what_is_remembered_survives_the_agent():
    ward = Ward()
    before = ward.sees_one(xids=(48,))
    cases = msgspec.json.decode(msgspec.json.encode(ward.judge.cases), type=dict[str, Case])
    [after] = Judge(HealthRules(), cases).hear([a_gpu()], ward.now + 1)
    assert after == before


def test_why_it_cannot_be_shared_is_said_and_is_no_illness():
    device = Ward().sees_one(sharing_note="nvidia-cuda-mps-control is not installed")
    assert (device.sharing_note, device.notes) == ("nvidia-cuda-mps-control is not installed", ())
