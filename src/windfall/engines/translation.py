"""Between the core's words and the agent's messages. Pure: values in, values out.

Decides what each word of one side is called on the other. Must not know which machine an agent stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from windfall.agent import messages
from windfall.agent.gpus import GpuDevice as AgentsGpu
from windfall.agent.own_directory import BEFORE_NAMES
from windfall.capacity.machines import GpuDevice, Machine
from windfall.control.events import (
    AgentConnected,
    AttemptExited,
    AttemptLost,
    AttemptProgressed,
    AttemptStarted,
    InterruptionNoticed,
    IsolationChanged,
    RebalanceRecommended,
    Report,
)
from windfall.control.gang_addresses import ADDRESS_FACT, INTERFACE_FACT
from windfall.control.instructions import (
    ForgetAttempt,
    Instruction,
    InterruptAttempt,
    RecommendRebalance,
    StartAttempt,
    StopAttempt,
)
from windfall.control.job_users import ANY_USER
from windfall.control.look_ahead import KEEPS_STANDBYS
from windfall.jobs.ids import AttemptToken, InstanceId, MachineId
from windfall.jobs.resources import Resources

#: The members that are moments of an agent's clock.
_MOMENTS = ("at", "started_at", "prepared_at", "exited_at", "state_at", "first_step_at")
Told = TypeVar("Told", bound=msgspec.Struct)
#: Where the output of a task is written, on the agent's machine.
LogPath = Callable[[str], str]
#: The states of attempts whose results the agent repeats at a connection.
ENDED = ("exited", "refused", "lost")


def to_messages(instructions: Iterable[Instruction], log_path: LogPath) -> list[messages.Message]:
    """What to tell the agent; all that it may forget goes into one message."""
    sent: list[messages.Message] = []
    forget: list[str] = []
    for instruction in instructions:
        if isinstance(instruction, StartAttempt):
            sent.append(_start(instruction, log_path))
        elif isinstance(instruction, StopAttempt):
            sent.append(_stop(instruction))
        elif isinstance(instruction, InterruptAttempt):
            sent.append(messages.Interrupt(instruction.token, instruction.deadline_at, instruction.words))
        elif isinstance(instruction, RecommendRebalance):
            sent.append(messages.Rebalance(instruction.token, instruction.at))
        elif isinstance(instruction, ForgetAttempt):
            forget.append(instruction.token)
    if forget:
        sent.append(messages.Forget(forget))
    return sent


def _stop(instruction: StopAttempt) -> messages.Stop:
    return messages.Stop(
        instruction.token,
        instruction.grace_s,
        instruction.lose,
        instruction.save_within_s,
        instruction.gives_up,
        instruction.if_unbegun,
    )


def _start(instruction: StartAttempt, log_path: LogPath) -> messages.Start:
    return messages.Start(
        token=instruction.token,
        task_id=instruction.task_id,
        argv=list(instruction.argv),
        environment=dict(instruction.environment),
        directory=None if instruction.enters_as_user else instruction.directory,
        log_path=log_path(instruction.task_id),
        vcpus=instruction.resources.vcpus,
        memory_mib=instruction.resources.memory_mib,
        gpu_ids=list(instruction.gpu_ids),
        shared_memory_mib=instruction.shared_memory_mib,
        needs_sandbox=instruction.shared_with_strangers,
        staging=instruction.staging,
        fence=instruction.fence,
        instance=instruction.instance,
        instance_type=instruction.instance_type,
        market=instruction.market,
        container=instruction.container,
        gpu_share=instruction.gpu_share,
        worker=instruction.worker,
        worker_key=instruction.worker_key,
        secrets=instruction.secrets,
        storage=instruction.storage,
        run_as=instruction.run_as,
        tenant=instruction.tenant,
        own_directory=instruction.directory if instruction.enters_as_user else None,
        behind=instruction.behind or "",
        stops_alone=instruction.stops_alone,
        log_limit_bytes=instruction.log_limit_bytes,
    )


def in_its_time(message: messages.Message, ahead_ms: int) -> messages.Message:
    """A message for an agent whose clock is ahead of ours, with its moments as that clock will show them."""
    if isinstance(message, messages.Interrupt):
        return msgspec.structs.replace(message, deadline_at=message.deadline_at + ahead_ms)
    if isinstance(message, messages.Rebalance):
        return msgspec.structs.replace(message, at=message.at + ahead_ms)
    return message


def in_our_time(message: Told, ahead_ms: int) -> Told:
    """What such an agent says, with its moments as our clock showed them.

    The moments of what was restored are left: the machine that wrote them may have been another one.
    """
    return with_moments(message, lambda moment: moment - ahead_ms)


def with_moments(message: Told, change: Callable[[int], int]) -> Told:
    """A message with each moment of its own changed; it is the same one if none is."""
    if isinstance(message, messages.Inventory):
        attempts = [with_moments(status, change) for status in message.attempts]
        return msgspec.structs.replace(message, attempts=attempts)
    changed: dict[str, Any] = _changed(message, change)
    for name in ("checkpoint", "progress"):
        part = getattr(message, name, None)
        if part is not None and (moved := _changed(part, change)):
            changed[name] = replace(part, **moved)
    return msgspec.structs.replace(message, **changed) if changed else message


def _changed(said: Any, change: Callable[[int], int]) -> dict[str, int]:
    moments = ((name, getattr(said, name, None)) for name in _MOMENTS)
    return {name: new for name, old in moments if old is not None and (new := change(old)) != old}


def to_report(message: messages.ToDaemon) -> Report | None:
    """What a message of the agent means to the core; None when it means nothing to it."""
    token = AttemptToken(getattr(message, "token", ""))
    if isinstance(message, messages.Started):
        return AttemptStarted(token, message.at, message.isolation, message.prepared_at)
    if isinstance(message, messages.Progressed):
        return AttemptProgressed(
            token,
            message.at,
            message.doing,
            message.restored,
            message.checkpoint,
            message.alarm,
            message.progress,
            message.commit,
            message.exited_at,
        )
    if isinstance(message, messages.Enrolled):
        return IsolationChanged(token, message.isolation)
    if isinstance(message, messages.Exited):
        return AttemptExited(
            token,
            message.at,
            message.exit_code,
            message.reason,
            message.started_at,
            message.isolation,
            message.exited_at,
            message.checkpoint,
            message.progress,
            message.failure,
            message.diagnosis,
            message.left,
            alone=message.alone,
        )
    if isinstance(message, messages.Refused):
        return AttemptExited(token, message.at, None, message.reason, given_back=message.given_back)
    if isinstance(message, messages.Lost):
        return AttemptLost(token, message.at)
    return None


def to_notices(notice: messages.Noticed, instances: Iterable[InstanceId]) -> list[Report]:
    """What the notice of a machine means to the instances on it."""
    if notice.deadline_at is not None:
        return [InterruptionNoticed(instance, notice.deadline_at, notice.words) for instance in instances]
    return [RebalanceRecommended(instance) for instance in instances] if notice.rebalance else []


def to_devices(gpus: Sequence[AgentsGpu]) -> tuple[GpuDevice, ...]:
    """The agent's GPUs, as the core knows devices."""
    fields_of_gpus = (msgspec.structs.asdict(gpu) for gpu in gpus)
    return tuple(
        GpuDevice(**{name: value for name, value in gpu.items() if name != "bus_id"})
        for gpu in fields_of_gpus
    )


def to_connected(
    machine: Machine, inventory: messages.Inventory, results: Sequence[messages.Result]
) -> AgentConnected:
    """All that the agent knows, in one event: the results that it repeats belong to its inventory."""
    return AgentConnected(
        machine,
        running=to_running(inventory),
        preparing=tuple(
            AttemptToken(status.token)
            for status in inventory.attempts
            if status.state not in ("running", *ENDED)
        ),
        ended=to_ended(results),
    )


def to_running(inventory: messages.Inventory) -> tuple[AttemptStarted, ...]:
    """The attempts of an inventory that run."""
    return tuple(
        AttemptStarted(
            AttemptToken(status.token), status.started_at, status.isolation or None, status.prepared_at
        )
        for status in inventory.attempts
        if status.state == "running" and status.started_at is not None
    )


def to_ended(results: Sequence[messages.Result]) -> tuple[AttemptExited | AttemptLost, ...]:
    """The ends that an agent repeats."""
    ended = (to_report(result) for result in results)
    return tuple(report for report in ended if isinstance(report, AttemptExited | AttemptLost))


def machine_of_host(inventory: messages.Inventory) -> Machine:
    """A machine, as its agent describes it."""
    gpus = to_devices(inventory.gpus)
    facts = {
        "hostname": inventory.hostname,
        "job_user": inventory.job_user,
        "isolation": ", ".join(inventory.abilities) or "process",
        "containers": inventory.containers,
        "network_mbits": "" if inventory.network_mbits is None else str(inventory.network_mbits),
        "warnings": "\n".join(inventory.warnings),
        ADDRESS_FACT: inventory.address,
        INTERFACE_FACT: inventory.interface,
        **({ANY_USER: "yes"} if inventory.any_user else {}),
        **({KEEPS_STANDBYS: "yes"} if inventory.keeps_standbys else {}),
    }
    name = MachineId(inventory.machine_id or BEFORE_NAMES)
    return Machine(name, Resources(inventory.vcpus, inventory.memory_mib, len(gpus)), gpus, facts)


def with_devices(machine: Machine, reported: messages.Devices) -> Machine:
    """A machine whose GPUs have changed."""
    gpus = to_devices(reported.gpus)
    return replace(machine, gpus=gpus, total=replace(machine.total, gpus=len(gpus)))
