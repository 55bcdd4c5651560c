"""What a hostile machine may say, and what becomes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from windfall.agent import messages
from windfall.agent.errors import ProtocolError
from windfall.agent.mirror_messages import LogPiece
from windfall.capacity.machines import GpuDevice, Machine
from windfall.engines.fleet.plausible import MOST_GPUS, believed, implausible, implausible_devices
from windfall.jobs.ids import MachineId
from windfall.jobs.resources import Resources
from windfall.jobs.staging import LeftFiles, Mark

NOW = 1_800_000_000_000
HONEST = Machine(MachineId("hosts-a"), Resources(4, 1024), facts={"address": "10.0.0.7", "interface": "eth0"})


def test_what_an_agent_of_ours_says_is_believed_as_it_is():
    for said in (
        messages.Started("a#1", 7, NOW - 5, "process", NOW - 9),
        messages.Exited("a#1", 1, "no", NOW - 9, NOW, "", checkpoint=Mark("step-1", NOW - 3, NOW - 4, 10)),
        messages.Noticed(NOW + 120_000, "spot interruption"),
        LogPiece("task", "log", 5, b"x" * 100_000, 100_005),
    ):
        assert believed(said, NOW) is said or believed(said, NOW) == said


@pytest.mark.parametrize(
    "said",
    [
        messages.Lost("a#1", 10**30),
        messages.Exited("a#1", -(10**30), None, 1, 1, ""),
        messages.Exited("a#1", 0, None, 1, 1, "", left=LeftFiles(10**20, 1, ())),
        messages.Exited("a#1", 0, None, 1, 1, "", checkpoint=Mark("m", 1, 1, 10**20)),
        messages.Exited("a#1", 0, "x" * 100_000, 1, 1, ""),
        messages.Noticed(10**30),
        LogPiece("task", "log", 10**30, b"", 1),
    ],
    ids=repr,
)
def test_what_no_store_or_reader_can_have_is_refused(said):
    with pytest.raises(ProtocolError):
        believed(said, NOW)


def test_nothing_has_happened_later_than_now_and_no_notice_is_for_the_year_9999():
    started = believed(messages.Started("a#1", 7, NOW + 86_400_000, "", -5), NOW)
    assert (started.at, started.prepared_at) == (NOW, 0)
    exited = believed(
        messages.Exited("a#1", 0, None, NOW, NOW * 2, "", checkpoint=Mark("m", NOW * 2, NOW * 2, 1)), NOW
    )
    assert exited.checkpoint is not None
    assert (exited.at, exited.checkpoint.at) == (NOW, NOW)
    status = messages.AttemptStatus("a#1", "t", "running", started_at=NOW * 2)
    inventory = messages.Inventory("h", 1, 1, 1, [], [], "", [], [status])
    assert believed(inventory, NOW).attempts[0].started_at == NOW
    noticed = believed(messages.Noticed(253_402_300_799_999), NOW)
    assert noticed.deadline_at is not None
    assert noticed.deadline_at < NOW + 31 * 86_400_000


@pytest.mark.parametrize(
    "facts",
    [
        {"address": "10.0.0.7 x\n10.6.6.6 s3.amazonaws.com #"},
        {"address": "10.0.0.7,10.0.0.8"},
        {"address": "10.0.0.7\0"},
        {"interface": "eth0\0"},
        {"interface": "eth0,eth1"},
    ],
)
def test_an_address_cannot_write_lines_into_files_of_other_machines(facts):
    assert implausible(HONEST) is None
    assert implausible(replace(HONEST, facts={**HONEST.facts, **facts})) is not None


def test_gpus_that_cannot_be():
    gpu = GpuDevice("GPU-1", "A100", 40_000)
    assert implausible_devices([gpu, replace(gpu, id="GPU-2")]) is None
    assert implausible_devices([gpu, gpu]) == "two GPUs with one id"
    assert implausible_devices([replace(gpu, id=str(it)) for it in range(MOST_GPUS + 1)]) == "4097 GPUs"
    assert implausible_devices([replace(gpu, memory_mib=-1)]) is not None
    assert implausible(replace(HONEST, gpus=(gpu, gpu))) == "two GPUs with one id"
