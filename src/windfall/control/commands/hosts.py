"""Commands about machines: the hosts that the user listed, and GPUs that are kept from jobs."""

from __future__ import annotations

from dataclasses import dataclass

from windfall.capacity.hosts import Host
from windfall.control.commands.storage import StorageCommand
from windfall.jobs.ids import MachineId


@dataclass(frozen=True, slots=True)
class AddHost:
    """The reply is the Host; one of the same name and destination is replaced."""

    host: Host


@dataclass(frozen=True, slots=True)
class DrainHost:
    """Place nothing new on a host, or place jobs there again; the reply is the Host."""

    name: str
    draining: bool = True


@dataclass(frozen=True, slots=True)
class RemoveHost:
    """Have a host no more; its agent has ended, or is given up."""

    name: str


@dataclass(frozen=True, slots=True)
class FenceDevice:
    """Keep new jobs from a GPU, or allow them again (`reason` None). The reply is how many attempts hold it."""

    gpu_id: str
    reason: str | None
    #: The machine that has it; needed where two have a GPU of that id, as machines that simulate them do.
    machine: MachineId | None = None


HostCommand = AddHost | DrainHost | RemoveHost
#: What an administrator lists for jobs to use.
ListingCommand = HostCommand | StorageCommand | FenceDevice
