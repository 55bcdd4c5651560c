"""Which members of requests are refused, and which are kept and returned without doing anything.

Everything else that an operation's model has does what AWS says it does. The handlers refuse by this table
and the coverage page is written from it, so that neither can say what the other does not do. Nested members
are written with a dot. Must not know how anything is done.
"""

from __future__ import annotations

from collections.abc import Mapping

EKS = "jobs on Amazon EKS"

#: Operation -> member -> what it belongs to.
REFUSED: Mapping[str, Mapping[str, str]] = {
    "CreateComputeEnvironment": {"eksConfiguration": EKS},
    "UpdateComputeEnvironment": {"eksConfiguration": EKS},
    "RegisterJobDefinition": {
        "eksProperties": EKS,
    },
    "SubmitJob": {
        "eksPropertiesOverride": EKS,
    },
    "ListJobs": {},
}

#: The same for parts of members; the handlers name them in their refusals.
REFUSED_PARTS: Mapping[str, tuple[str, ...]] = {
    "CreateComputeEnvironment": (
        "computeResources.managedInstancesProvider",
        "computeResources.capacityTags",
    ),
    "UpdateComputeEnvironment": (
        "computeResources.managedInstancesProvider",
        "computeResources.capacityTags",
    ),
    "RegisterJobDefinition": (
        "containerProperties.volumes.efsVolumeConfiguration",
        "containerProperties.volumes.s3filesVolumeConfiguration",
        "ecsProperties.taskProperties.networkMode",
        "ecsProperties.taskProperties.volumes.efsVolumeConfiguration",
        "ecsProperties.taskProperties.volumes.s3filesVolumeConfiguration",
        "ecsProperties.taskProperties.containers.dependsOn",
        "nodeProperties.nodeRangeProperties.eksProperties",
    ),
    "SubmitJob": ("nodeOverrides.nodePropertyOverrides.eksPropertiesOverride",),
}

_KEPT_RESOURCES = (
    "imageId",
    "subnets",
    "securityGroupIds",
    "ec2KeyPair",
    "instanceRole",
    "tags",
    "placementGroup",
    "launchTemplate",
    "ec2Configuration",
    "scalingPolicy",
    "desiredvCpus",
)
_KEPT_CONTAINER = (
    "executionRoleArn",
    "instanceType",
    "networkConfiguration",
    "fargatePlatformConfiguration",
    "enableExecuteCommand",
    "ephemeralStorage",
    "runtimePlatform",
    "repositoryCredentials",
    "logConfiguration.secretOptions",
)
_KEPT_TASK = (
    "executionRoleArn",
    "platformVersion",
    "ipcMode",
    "pidMode",
    "networkConfiguration",
    "ephemeralStorage",
    "runtimePlatform",
    "enableExecuteCommand",
    "containers.firelensConfiguration",
    "containers.repositoryCredentials",
    "containers.startTimeout",
    "containers.stopTimeout",
    "containers.logConfiguration.secretOptions",
)

#: Operation -> members that are kept and returned as they were sent, and change nothing here.
KEPT: Mapping[str, tuple[str, ...]] = {
    "CreateComputeEnvironment": (
        "serviceRole",
        "context",
        "ecsSettings",
        *(f"computeResources.{name}" for name in (*_KEPT_RESOURCES, "spotIamFleetRole")),
    ),
    "UpdateComputeEnvironment": (
        "serviceRole",
        "context",
        "ecsSettings",
        *(f"computeResources.{name}" for name in (*_KEPT_RESOURCES, "updateToLatestImageVersion")),
    ),
    "CreateJobQueue": ("jobQueueType",),
    "RegisterJobDefinition": (
        "propagateTags",
        "platformCapabilities",
        *(f"containerProperties.{name}" for name in _KEPT_CONTAINER),
        *(f"ecsProperties.taskProperties.{name}" for name in _KEPT_TASK),
    ),
    "SubmitJob": ("propagateTags", "containerOverrides.instanceType"),
}
