"""AWS's own texts in the records of jobs: status reasons, and the names that reasons of containers begin with.

Clients read them, and their retry rules match them, so they are spelled exactly as AWS does. The core and the agent
write them; aws_api/ has the texts of requests and refusals. Decides nothing.
"""

from __future__ import annotations

from enum import StrEnum

from windfall.jobs.ids import InstanceId

# How an attempt ended ------------------------------------------------------------------------------------------------

EXITED = "Essential container in task exited"
TIMED_OUT = "Job attempt duration exceeded timeout"
FAILED_TO_START = "Task failed to start"
#: How the status reason of an attempt begins whose host was lost.
HOST_LOST = "Host EC2"
CROSS_SHARE_PREEMPTION = "Cross-share preemption triggered to reclaim borrowed capacity"
IN_SHARE_PREEMPTION = "In-share preemption triggered by a job of higher priority"


def host_lost(instance: InstanceId) -> str:
    """The status reason that clients' retry rules know as a lost host (`Host EC2*`)."""
    return f"{HOST_LOST} (instance {instance}) terminated."


# Why a job failed without an attempt of its own -----------------------------------------------------------------------

DEPENDENCY_FAILED = "Dependent Job failed"
CHILD_FAILED = "Array Child Job failed"
#: A job waited too long in a state, and a service job; followed by the code of the reason for which it waited.
STATE_TIME_LIMIT = "Canceled by JobStateTimeLimit action due to reason"
SERVICE_STATE_TIME_LIMIT = "Terminated by JobStateTimeLimit action due to reason"

# How the reason of a container begins --------------------------------------------------------------------------------

CANNOT_PULL = "CannotPullContainerError"
CANNOT_CREATE = "CannotCreateContainerError"
CANNOT_START = "CannotStartContainerError"
#: A task's resources, such as secrets or storage, are not available.
CANNOT_INITIALIZE = "ResourceInitializationError"
OUT_OF_MEMORY = "OutOfMemoryError"

# Why a job waits -----------------------------------------------------------------------------------------------------


class AwsReason(StrEnum):
    """What AWS Batch writes into the statusReason of a job that blocks the head of a queue."""

    TOO_LARGE = (
        "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - The job resource requirement (vCPU/memory/GPU) is "
        "higher than that can be met by the CE(s) attached to the job queue."
    )
    MAX_VCPUS = (
        "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE - CE(s) associated with the job queue cannot meet "
        "the CPU requirement of the job."
    )
    #: Followed by the instance types in brackets.
    NO_CAPACITY = (
        "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - Service cannot fulfill the capacity requested for "
        "instance type"
    )
    INVALID = "ACTION_REQUIRED - CE(s) associated with the job queue are invalid."
    UNDETERMINED = "UNDETERMINED - Batch job is blocked, root cause is undetermined."


class AwsQuotaReason(StrEnum):
    """What AWS Batch writes into the statusReason of a job that its quota share can never hold."""

    LIMITS = "MISCONFIGURATION:QUOTA_MANAGEMENT_LIMIT_EXCEEDED - Job requirements exceed quota share capacity limits."
    BORROW_LIMITS = (
        "MISCONFIGURATION:QUOTA_MANAGEMENT_LIMIT_EXCEEDED - Job requirements exceed quota share capacity limits"
        " and borrow limits."
    )
    NOT_BORROWABLE = (
        "MISCONFIGURATION:QUOTA_MANAGEMENT_LIMIT_EXCEEDED - Job requires borrowing that exceeds all configured"
        " borrowable capacity."
    )


#: The statusReason of a job that its service environment can never hold.
MAX_RESOURCE = (
    "MISCONFIGURATION:SERVICE_ENVIRONMENT_MAX_RESOURCE - Service environment(s) associated with the job queue cannot"
    " meet the capacity requirement of the job."
)
