"""Between the core's words and the agent's messages."""

from __future__ import annotations

from pathlib import Path

import msgspec

from windfall.agent import messages
from windfall.agent.attempt_files import AttemptDirectory
from windfall.agent.gpus import GpuDevice
from windfall.control.events import AttemptExited, AttemptLost, AttemptStarted, IsolationChanged
from windfall.control.instructions import (
    ForgetAttempt,
    InterruptAttempt,
    RecommendRebalance,
    StartAttempt,
    StopAttempt,
    TerminateInstance,
)
from windfall.engines.translation import (
    in_its_time,
    in_our_time,
    machine_of_host,
    to_connected,
    to_devices,
    to_messages,
    to_report,
)
from windfall.jobs.ids import AttemptToken, InstanceId, TaskId
from windfall.jobs.resources import Resources
from windfall.jobs.staging import Mark, Progress


def a_status(token: str, state: str, started_at: int | None = None) -> messages.AttemptStatus:
    return messages.AttemptStatus(token, "t", state, started_at=started_at)


def an_inventory(*attempts: messages.AttemptStatus) -> messages.Inventory:
    gpu = GpuDevice("GPU-simulated-0", "Simulated GPU", None, simulated=True)
    return messages.Inventory(
        "host", 1, 4.0, 1024, [gpu], ["bubblewrap"], "nobody", ["beware"], list(attempts)
    )


def test_instructions_become_messages_and_all_that_may_be_forgotten_goes_together():
    token, place = AttemptToken("a#1"), InstanceId("i-1")
    start = StartAttempt(
        token, TaskId("t" * 32), place, ("true",), {"A": "1"}, None, Resources(1, 64, 1), ("GPU-0",), 8, True
    )
    told = to_messages(
        [
            start,
            ForgetAttempt(AttemptToken("b#1"), None),
            StopAttempt(token, place, 30),
            TerminateInstance(place),
            ForgetAttempt(AttemptToken("c#1"), place),
        ],
        AttemptDirectory(Path("/logs")).log_path,
    )
    [begin, stop, forget] = told
    assert isinstance(begin, messages.Start)
    assert (begin.log_path, begin.gpu_ids, begin.needs_sandbox) == (f"/logs/{'t' * 32}.log", ["GPU-0"], True)
    assert (begin.shared_memory_mib, begin.environment) == (8, {"A": "1"})
    assert stop == messages.Stop("a#1", 30)
    assert forget == messages.Forget(["b#1", "c#1"])


def test_a_directory_of_the_submitter_is_not_told_where_an_earlier_agent_would_open_it_as_root():
    token, place = AttemptToken("a#1"), InstanceId("i-1")
    start = StartAttempt(
        token,
        TaskId("t" * 32),
        place,
        ("true",),
        {},
        "/home/me",
        Resources(1, 64),
        (),
        None,
        enters_as_user=True,
    )
    [told] = to_messages([start], AttemptDirectory(Path("/logs")).log_path)
    assert isinstance(told, messages.Start)
    assert (told.directory, told.own_directory) == (None, "/home/me")


def test_moments_are_told_in_the_clock_of_the_side_that_hears_them():
    ahead = 5_000
    assert in_its_time(messages.Interrupt("a#1", 99), ahead) == messages.Interrupt("a#1", 5_099)
    assert in_its_time(messages.Rebalance("a#1", 7), ahead) == messages.Rebalance("a#1", 5_007)
    stop = messages.Stop("a#1", 30, save_within_s=5)
    assert in_its_time(stop, ahead) is stop, "what is said as a length needs no clock"
    mark, old = Mark("m", 8_000, 7_500, 1), Mark("old", 8_000, 7_000, 1)
    exited = messages.Exited(
        "a#1", 0, None, 6_000, 9_000, "process", 8_500, mark, Progress(8_200, 3, first_step_at=6_100)
    )
    ours = in_our_time(exited, ahead)
    assert (ours.started_at, ours.at, ours.exited_at, ours.exit_code) == (1_000, 4_000, 3_500, 0)
    assert (ours.checkpoint, ours.progress) == (
        Mark("m", 3_000, 2_500, 1),
        Progress(3_200, 3, first_step_at=1_100),
    )
    told = in_our_time(messages.Progressed("a#1", 9_000, restored=old), ahead)
    assert (told.at, told.restored) == (4_000, old), "another machine may have written it"
    inventory = an_inventory(messages.AttemptStatus("a#1", "t", "running", 1, 6_000, "process", 5_900))
    [status] = in_our_time(inventory, ahead).attempts
    assert (status.started_at, status.prepared_at) == (1_000, 900)


def test_notices_and_losses_become_messages():
    token, place = AttemptToken("a#1"), InstanceId("i-1")
    told = to_messages(
        [
            InterruptAttempt(token, place, 99, "spot interruption"),
            RecommendRebalance(token, place, 7),
            StopAttempt(token, place, 0, lose=True),
        ],
        AttemptDirectory(Path("/logs")).log_path,
    )
    assert told == [
        messages.Interrupt("a#1", 99, "spot interruption"),
        messages.Rebalance("a#1", 7),
        messages.Stop("a#1", 0, lose=True),
    ]


def test_messages_become_reports():
    token = AttemptToken("a#1")
    assert to_report(messages.Started("a#1", 7, 5, "process")) == AttemptStarted(token, 5, "process")
    assert to_report(messages.Enrolled("a#1", "more")) == IsolationChanged(token, "more")
    ended = to_report(messages.Exited("a#1", 137, "OutOfMemoryError", 5, 9, "process"))
    assert ended == AttemptExited(token, 9, 137, "OutOfMemoryError", 5, "process")
    assert to_report(messages.Refused("a#1", "no", 9)) == AttemptExited(token, 9, None, "no")
    assert to_report(messages.Lost("a#1", 9)) == AttemptLost(token, 9)
    assert to_report(messages.Rejected("old", 3)) is None


def test_an_inventory_with_its_results_is_one_event():
    inventory = an_inventory(
        a_status("r#1", "running", 5), a_status("s#1", "starting"), a_status("e#1", "exited")
    )
    connected = to_connected(
        machine_of_host(inventory), inventory, [messages.Exited("e#1", 0, None, 1, 2, "process")]
    )
    assert [started.token for started in connected.running] == ["r#1"]
    assert connected.preparing == ("s#1",)
    assert [ended.token for ended in connected.ended] == ["e#1"]
    assert connected.machine.total == Resources(4.0, 1024, 1)
    assert connected.machine.gpus[0].simulated
    assert connected.machine.facts["warnings"] == "beware"
    assert connected.machine.facts["network_mbits"] == ""


def test_a_host_says_how_fast_its_network_is():
    inventory = msgspec.structs.replace(an_inventory(), network_mbits=25_000)
    assert machine_of_host(inventory).facts["network_mbits"] == "25000"


def test_where_a_gpu_is_on_its_bus_stays_with_the_agent():
    [device] = to_devices([GpuDevice("GPU-a", "H200", 1, driver="580", bus_id="00000000:3B:00.0")])
    assert (device.id, device.driver) == ("GPU-a", "580")
