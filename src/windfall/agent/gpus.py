"""One GPU as the agent reports it, and which this machine has. Must not know who gets them, nor how their health is
found out (agent/devices/).
"""

from __future__ import annotations

import msgspec


class GpuDevice(msgspec.Struct, frozen=True):
    """One GPU; `simulated` devices have an id and nothing else."""

    id: str
    name: str
    memory_mib: int | None = None
    simulated: bool = False
    #: As capacity.machines.GpuDevice has them.
    fence: str | None = None
    evacuate: bool = False
    notes: tuple[str, ...] = ()
    sharing: str | None = None
    parent: str | None = None
    driver: str | None = None
    lost: bool = False
    sharing_note: str | None = None
    #: Where it is on the PCI bus, as the driver writes it; the agent's own business.
    bus_id: str | None = None


def find_gpus(spec: str) -> list[GpuDevice]:
    """Return the GPUs for `auto`, `none`, `simulated:N` or `recorded:/PATH`, looked at once."""
    from windfall.agent.devices.health import Judge  # They import this module.
    from windfall.agent.devices.sources import open_source

    source = open_source(spec)
    return [] if source is None else Judge(source.rules).hear(source.read(), 0)
