"""Finds the container in the answer about a job or an attempt, however its definition was written.

A definition with ecsProperties is answered as a task; of its containers the one that runs is what commands show. Must
not ask anybody.
"""

from __future__ import annotations

from typing import Any

from windfall.cli.wording import counted, memory


def container_of(described: dict[str, Any]) -> dict[str, Any]:
    """The container of a job, or of one of its attempts; empty when nothing is known of it."""
    if container := described.get("container"):
        return dict(container)
    tasks = (
        described.get("taskProperties") or (described.get("ecsProperties") or {}).get("taskProperties") or []
    )
    containers = [container for task in tasks for container in task.get("containers") or []]
    # An attempt does not say which one is essential, but only that one has a log.
    containers.sort(
        key=lambda container: ("logStreamName" not in container, not container.get("essential", True))
    )
    return dict(containers[0]) if containers else {}


def asked_for(job: dict[str, Any]) -> str:
    """The vCPUs, the memory and the GPUs that a job asks for."""
    container = container_of(job)
    requirements = {entry["type"]: entry["value"] for entry in container.get("resourceRequirements") or []}
    vcpus = requirements.get("VCPU") or container.get("vcpus")
    mib = int(requirements.get("MEMORY") or container.get("memory") or 0)
    gpus = [counted(int(requirements["GPU"]), "GPU")] if "GPU" in requirements else []
    return ", ".join([counted(float(vcpus or 0), "vCPU"), memory(mib), *gpus])
