"""Between the core's words and the agent's messages, for one agent on this host. Pure: values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from windfall.agent import messages
from windfall.capacity.machines import GpuDevice, Machine
from windfall.control.events import (
    AgentConnected,
    AttemptExited,
    AttemptLost,
    AttemptStarted,
    IsolationChanged,
    Report,
)
from windfall.control.instructions import ForgetAttempt, Instruction, StartAttempt, StopAttempt
from windfall.jobs.ids import AttemptToken, MachineId
from windfall.jobs.resources import Resources

#: The one machine of this engine.
THIS_HOST = MachineId("this-host")


def to_messages(instructions: Iterable[Instruction], logs: Path) -> list[messages.Message]:
    """What to tell the agent; all that it may forget goes into one message."""
    told: list[messages.Message] = []
    forget: list[str] = []
    for instruction in instructions:
        if isinstance(instruction, StartAttempt):
            told.append(_start(instruction, logs))
        elif isinstance(instruction, StopAttempt):
            told.append(messages.Stop(instruction.token, instruction.grace_s))
        elif isinstance(instruction, ForgetAttempt):
            forget.append(instruction.token)
    if forget:
        told.append(messages.Forget(forget))
    return told


def _start(instruction: StartAttempt, logs: Path) -> messages.Start:
    return messages.Start(
        token=instruction.token,
        task_id=instruction.task_id,
        argv=list(instruction.argv),
        environment=dict(instruction.environment),
        directory=instruction.directory,
        log_path=f"{logs}/{instruction.task_id}.log",
        vcpus=instruction.resources.vcpus,
        memory_mib=instruction.resources.memory_mib,
        gpu_ids=list(instruction.gpu_ids),
        shared_memory_mib=instruction.shared_memory_mib,
        needs_sandbox=instruction.shared_with_strangers,
    )


def to_report(message: messages.ToDaemon) -> Report | None:
    """What a message of the agent means to the core; None when it means nothing to it."""
    token = AttemptToken(getattr(message, "token", ""))
    if isinstance(message, messages.Started):
        return AttemptStarted(token, message.at, message.isolation)
    if isinstance(message, messages.Enrolled):
        return IsolationChanged(token, message.isolation)
    if isinstance(message, messages.Exited):
        return AttemptExited(
            token, message.at, message.exit_code, message.reason, message.started_at, message.isolation
        )
    if isinstance(message, messages.Refused):
        return AttemptExited(token, message.at, None, message.reason)
    if isinstance(message, messages.Lost):
        return AttemptLost(token, message.at)
    return None


def to_machine(inventory: messages.Inventory) -> Machine:
    """This host, as its agent describes it."""
    gpus = tuple(GpuDevice(gpu.id, gpu.name, gpu.memory_mib, gpu.simulated) for gpu in inventory.gpus)
    facts = {
        "hostname": inventory.hostname,
        "job_user": inventory.job_user,
        "isolation": ", ".join(inventory.abilities) or "process",
        "warnings": "\n".join(inventory.warnings),
    }
    return Machine(THIS_HOST, Resources(inventory.vcpus, inventory.memory_mib, len(gpus)), gpus, facts)


def to_connected(inventory: messages.Inventory, results: Sequence[messages.Result]) -> AgentConnected:
    """All that the agent knows, in one event: the results that it repeats belong to its inventory."""
    ended = [to_report(result) for result in results]
    return AgentConnected(
        to_machine(inventory),
        running=tuple(
            AttemptStarted(AttemptToken(status.token), status.started_at, status.isolation or None)
            for status in inventory.attempts
            if status.state == "running" and status.started_at is not None
        ),
        preparing=tuple(
            AttemptToken(status.token) for status in inventory.attempts if status.state == "starting"
        ),
        ended=tuple(report for report in ended if isinstance(report, AttemptExited | AttemptLost)),
    )
