"""Names, ids and ARNs: how they are written, and how a reference that may be any of them is read.

One daemon has one account and serves every region, so that a reference is read by its last part and its
region does not matter. Must not know whether a thing exists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from windfall.aws_api.batch.rejections import client_exception, shown
from windfall.jobs.ids import DefinitionKey, EnvironmentName, InstanceId, JobId, QueueName, TaskId
from windfall.jobs.tenants import TENANT_NAME

ENVIRONMENT, QUEUE, DEFINITION, JOB = "compute-environment", "job-queue", "job-definition", "job"
CONSUMABLE_RESOURCE = "consumable-resource"
POLICY = "scheduling-policy"
#: In an ARN it follows its queue: `job-queue/<queue>/quota-share/<name>`.
QUOTA_SHARE = "quota-share"
SERVICE_ENVIRONMENT, SERVICE_JOB = "service-environment", "service-job"
#: What stands where Batch's API wants a job definition's name for a SageMaker training job.
TRAINING_DEFINITION = "sagemaker-training"

_ARN = re.compile(r"arn:[a-z-]+:batch:[a-z0-9-]*:[0-9]*:([a-z-]+)/(.+)")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
#: One that is not the caller's own is named with its tenant.
_DEFINITION = re.compile(
    rf"(?:{TENANT_NAME.pattern}/)?[A-Za-z0-9_-]{{1,128}}(?::[1-9][0-9]{{0,8}})?", re.ASCII
)
#: ASCII digits without leading zeros, so that a child, or a node, has one spelling only.
_JOB_ID = re.compile(r"[0-9A-Za-z._-]{1,160}(?::(?:0|[1-9][0-9]{0,4})|#(?:0|[1-9][0-9]{0,2}))?")


@dataclass(frozen=True, slots=True)
class Arns:
    """Writes the ARNs of one region and account."""

    region: str
    account_id: str

    def of(self, kind: str, name: str) -> str:
        """The ARN of a Batch resource."""
        return f"arn:aws:batch:{self.region}:{self.account_id}:{kind}/{name}"

    def environment(self, name: EnvironmentName) -> str:
        """`...:compute-environment/<name>`."""
        return self.of(ENVIRONMENT, name)

    def queue(self, name: QueueName) -> str:
        """`...:job-queue/<name>`."""
        return self.of(QUEUE, name)

    def quota_share(self, queue: QueueName, name: str) -> str:
        """`...:job-queue/<queue>/quota-share/<name>`."""
        return f"{self.queue(queue)}/{QUOTA_SHARE}/{name}"

    def definition(self, key: DefinitionKey) -> str:
        """`...:job-definition/<name>:<revision>`; a training job has no definition of its own."""
        key = key or DefinitionKey(f"{TRAINING_DEFINITION}:1")
        return self.of(DEFINITION, key)

    def job(self, job_id: JobId) -> str:
        """`...:job/<id>`, with `:<index>` for the child of an array and `#<number>` for a node."""
        return self.of(JOB, job_id)

    def policy(self, name: str) -> str:
        """`...:scheduling-policy/<name>`."""
        return self.of(POLICY, name)

    def consumable_resource(self, name: str) -> str:
        """`...:consumable-resource/<name>`."""
        return self.of(CONSUMABLE_RESOURCE, name)

    def service_environment(self, name: str) -> str:
        """`...:service-environment/<name>`."""
        return self.of(SERVICE_ENVIRONMENT, name)

    def training_job(self, name: str) -> str:
        """The ARN of the SageMaker training job that a service job's attempt is."""
        return f"arn:aws:sagemaker:{self.region}:{self.account_id}:training-job/{name}"

    def cluster(self, environment: EnvironmentName) -> str:
        """What stands for the ECS cluster of an environment."""
        return self._ecs("cluster", cluster_name(environment))

    def container_instance(self, environment: EnvironmentName, instance: InstanceId) -> str:
        """What stands for the ECS container instance that an attempt ran on."""
        return self._ecs("container-instance", f"{cluster_name(environment)}/{instance}")

    def task(self, environment: EnvironmentName, task_id: TaskId) -> str:
        """What stands for the ECS task that an attempt is."""
        return self._ecs("task", f"{cluster_name(environment)}/{task_id}")

    def _ecs(self, kind: str, name: str) -> str:
        return f"arn:aws:ecs:{self.region}:{self.account_id}:{kind}/{name}"


def cluster_name(environment: EnvironmentName) -> str:
    """The name that AWS's own clusters begin with; it needs no more than the environment's name."""
    return f"AWSBatch-{environment}"


def parse_arn(arn: str) -> tuple[str, str]:
    """The kind and name in a Batch ARN; a quota share is named by `<queue>/<name>`."""
    match = _ARN.fullmatch(arn)
    if match is None:
        raise client_exception(f"Invalid ARN {shown(arn)}")
    parts = match[2].split("/")
    if match[1] == QUEUE and len(parts) == 3 and parts[1] == QUOTA_SHARE:
        return QUOTA_SHARE, f"{parts[0]}/{parts[2]}"
    return match[1], match[2]


def name_in(reference: str, kind: str) -> str:
    """The name in a reference that is a name or an ARN of this kind."""
    if not reference.startswith("arn:"):
        return reference
    found_kind, name = parse_arn(reference)
    if found_kind != kind:
        raise client_exception(f"{shown(reference)} is not the ARN of a {kind}")
    return name


def queue_name(reference: str) -> QueueName:
    """The queue that a name or ARN means."""
    return QueueName(name_in(reference, QUEUE))


def quota_share_key(arn: str) -> str:
    """`<queue>/<name>` of the quota share that an ARN means."""
    kind, key = parse_arn(arn)
    if kind != QUOTA_SHARE:
        raise client_exception(f"{shown(arn)} is not the ARN of a {QUOTA_SHARE}")
    return key


def environment_name(reference: str) -> EnvironmentName:
    """The compute environment that a name or ARN means."""
    return EnvironmentName(name_in(reference, ENVIRONMENT))


def policy_name(reference: str) -> str:
    """The scheduling policy that an ARN (or, which AWS does not take, a name) means."""
    return name_in(reference, POLICY)


def consumable_resource_name(reference: str) -> str:
    """The consumable resource that a name or ARN means."""
    return name_in(reference, CONSUMABLE_RESOURCE)


def service_environment_name(reference: str) -> str:
    """The service environment that a name or ARN means."""
    return name_in(reference, SERVICE_ENVIRONMENT)


def definition_reference(reference: str) -> str:
    """`name` or `name:revision`, from those or from an ARN with or without the revision."""
    name = name_in(reference, DEFINITION)
    if _DEFINITION.fullmatch(name) is None:
        raise client_exception(f"Provided name {shown(name)} is not supported pattern[a-zA-Z_0-9-]{{1,128}}")
    return name


def service_job_reference(reference: str) -> JobId | None:
    """The service job that an id or ARN names; None if it cannot be one."""
    return job_reference(reference, SERVICE_JOB)


def job_reference(reference: str, kind: str = JOB) -> JobId | None:
    """The job that an id, `id:index`, `id#node` or ARN names; None if it cannot be one."""
    name = reference
    if reference.startswith("arn:"):
        match = _ARN.fullmatch(reference)
        if match is None or match[1] != kind:
            return None
        name = match[2]
    return JobId(name) if _JOB_ID.fullmatch(name) else None


def check_name(name: str, what: str) -> str:
    """The name itself, if it is one that AWS allows for environments, queues and definitions."""
    if _NAME.fullmatch(name) is None:
        raise client_exception(
            f"{what} {shown(name)!r} must have 1 to 128 letters, digits, hyphens and underscores"
        )
    return name


def check_job_name(name: str) -> str:
    """The name itself, if it is one that AWS allows for jobs."""
    if _JOB_NAME.fullmatch(name) is None:
        raise client_exception("Job name should match valid pattern")
    return name
