"""Which members of requests are refused, and which are kept and returned without doing anything.

Everything else that an operation's model has does what AWS says it does. The handlers refuse by this table
and the coverage page is written from it, so that neither can say what the other does not do. Nested members
are written with a dot. Must not know how anything is done.
"""

from __future__ import annotations

from collections.abc import Mapping

FAIR_SHARE = "fair-share scheduling"
MULTI_NODE = "multi-node parallel jobs"
EKS = "jobs on Amazon EKS"
ECS_TASKS = "jobs of several containers"
CONSUMABLE = "consumable resources"
SERVICE_JOBS = "service jobs and service environments"

#: Operation -> member -> what it belongs to.
REFUSED: Mapping[str, Mapping[str, str]] = {
    "CreateComputeEnvironment": {"eksConfiguration": EKS},
    "UpdateComputeEnvironment": {"eksConfiguration": EKS},
    "CreateJobQueue": {"schedulingPolicyArn": FAIR_SHARE, "serviceEnvironmentOrder": SERVICE_JOBS},
    "UpdateJobQueue": {"schedulingPolicyArn": FAIR_SHARE, "serviceEnvironmentOrder": SERVICE_JOBS},
    "RegisterJobDefinition": {
        "nodeProperties": MULTI_NODE,
        "ecsProperties": ECS_TASKS,
        "eksProperties": EKS,
        "consumableResourceProperties": CONSUMABLE,
    },
    "SubmitJob": {
        "shareIdentifier": FAIR_SHARE,
        "schedulingPriorityOverride": FAIR_SHARE,
        "nodeOverrides": MULTI_NODE,
        "ecsPropertiesOverride": ECS_TASKS,
        "eksPropertiesOverride": EKS,
        "consumableResourcePropertiesOverride": CONSUMABLE,
    },
    "ListJobs": {"multiNodeJobId": MULTI_NODE},
}

#: The same for parts of members; the handlers name them in their refusals.
REFUSED_PARTS: Mapping[str, tuple[str, ...]] = {
    "CreateComputeEnvironment": (
        "computeResources.managedInstancesProvider",
        "computeResources.capacityTags",
    ),
    "UpdateComputeEnvironment": (
        "computeResources.type",
        "computeResources.managedInstancesProvider",
        "computeResources.capacityTags",
    ),
    "RegisterJobDefinition": (
        "containerProperties.volumes.efsVolumeConfiguration",
        "containerProperties.volumes.s3filesVolumeConfiguration",
    ),
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
    "jobRoleArn",
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
        "updatePolicy",
        "context",
        "ecsSettings",
        *(f"computeResources.{name}" for name in (*_KEPT_RESOURCES, "updateToLatestImageVersion")),
    ),
    "CreateJobQueue": ("jobQueueType",),
    "RegisterJobDefinition": (
        "schedulingPriority",
        "propagateTags",
        "platformCapabilities",
        *(f"containerProperties.{name}" for name in _KEPT_CONTAINER),
    ),
    "SubmitJob": ("propagateTags", "containerOverrides.instanceType"),
}
