"""The hosts of a training job: their names, their groups, and what each is told about the others.

Decides how hosts are numbered and named, and resourceconfig.json. Pure. Must not know what hosts run or where.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windfall.aws_api.sagemaker.rejections import invalid, missing, shown
from windfall.jobs.nodes import NODES_MAX, OWN_INTERFACE, OWN_NAME

HOST_PREFIX = "algo-"
#: The group of a cluster whose instances are all alike.
ONLY_GROUP = "homogeneousCluster"

TrainingRequest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Instances of one type, numbered from `first`; numbers count from 0 and names from 1."""

    name: str
    instance_type: str
    first: int
    count: int

    @property
    def numbers(self) -> range:
        """The numbers of its hosts."""
        return range(self.first, self.first + self.count)

    @property
    def hosts(self) -> list[str]:
        """The names of its hosts, in the order that SageMaker gives them: that of letters."""
        return sorted(host_name(number) for number in self.numbers)


@dataclass(frozen=True, slots=True)
class Cluster:
    """All hosts of a training job."""

    groups: tuple[HostGroup, ...]

    @property
    def count(self) -> int:
        """How many hosts there are."""
        return sum(group.count for group in self.groups)

    @property
    def hosts(self) -> list[str]:
        """The names of all hosts, in the order of letters."""
        return sorted(name for group in self.groups for name in group.hosts)

    def numbers(self, group_names: list[str]) -> tuple[int, ...]:
        """The hosts of some groups; of all, if none is named."""
        chosen = [group for group in self.groups if not group_names or group.name in group_names]
        return tuple(number for group in chosen for number in group.numbers)


@dataclass(frozen=True, slots=True)
class TrainingHost:
    """One host, or those of a group that differ by their names alone."""

    cluster: Cluster
    group: HostGroup
    #: Its name, or what stands for it until a host gets it.
    name: str = f"{HOST_PREFIX}1"

    @property
    def is_master(self) -> bool:
        """Whether it is the first of all hosts."""
        return self.name == host_name(0)

    @property
    def config(self) -> dict[str, Any]:
        """resourceconfig.json."""
        return {
            "current_host": self.name,
            "current_instance_type": self.group.instance_type,
            "current_group_name": self.group.name,
            "hosts": self.cluster.hosts,
            "instance_groups": [
                {
                    "instance_group_name": group.name,
                    "instance_type": group.instance_type,
                    "hosts": group.hosts,
                }
                for group in self.cluster.groups
            ],
            # Known when the nodes have their places; a name that a host does not have would break those who bind to it.
            "network_interface_name": OWN_INTERFACE if self.cluster.count > 1 else "lo",
        }


def host_name(number: int) -> str:
    """What SageMaker calls a host; numbers count from 0."""
    return f"{HOST_PREFIX}{number + 1}"


def cluster_of(resources: TrainingRequest) -> Cluster:
    """The hosts that a ResourceConfig asks for, or its refusal."""
    listed = resources.get("InstanceGroups") or ()
    if not listed:
        return Cluster((HostGroup(ONLY_GROUP, *_only_group(resources)),))
    for member in ("InstanceType", "InstanceCount"):
        if resources.get(member):
            raise invalid(
                f"ResourceConfig has both InstanceGroups and {member}; a group says its own, so drop {member}"
            )
    groups: list[HostGroup] = []
    for entry in listed:
        name, count = entry["InstanceGroupName"], entry["InstanceCount"]
        if name in {group.name for group in groups}:
            raise invalid(f"InstanceGroups has the name {shown(name)} more than once")
        if count < 1:
            raise invalid(f"InstanceCount of instance group {shown(name)} must be at least 1, got {count}")
        first = sum(group.count for group in groups)
        groups.append(HostGroup(name, entry["InstanceType"], first, count))
    cluster = Cluster(tuple(groups))
    _check_count(cluster.count)
    return cluster


def _only_group(resources: TrainingRequest) -> tuple[str, int, int]:
    if "InstanceType" not in resources:
        raise missing("resourceConfig.instanceType")
    if "InstanceCount" not in resources:
        raise missing("resourceConfig.instanceCount")
    count = resources["InstanceCount"]
    if count < 1:
        raise invalid("ResourceConfig.InstanceCount must be at least 1")
    _check_count(count)
    return resources["InstanceType"], 0, count


def _check_count(count: int) -> None:
    if count > NODES_MAX:
        raise invalid(f"A training job has at most {NODES_MAX} instances here, got {count}")


def hosts_of(cluster: Cluster) -> list[tuple[TrainingHost, int, int]]:
    """The hosts that differ in more than their names, each with the numbers of the first and the last of its kind."""
    hosts = []
    for group in cluster.groups:
        first, last = group.first, group.first + group.count - 1
        if first == 0:
            hosts.append((TrainingHost(cluster, group, host_name(0)), 0, 0))
            first = 1
        if first <= last:
            hosts.append((TrainingHost(cluster, group, OWN_NAME), first, last))
    return hosts
