"""Names, ids and ARNs of training jobs, and the queues that they wait in.

Decides how a training job is called in the core. Must not know whether one exists.
"""

from __future__ import annotations

import re

from windfall.aws_api.sagemaker.rejections import invalid, not_found, shown
from windfall.capacity.environments import TRAINING_ON_DEMAND, TRAINING_SPOT
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.submitters import DEFAULT_TENANT
from windfall.jobs.tenants import View, given_name, split_name

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
#: Each environment has one queue, of the same name.
QUEUES = (QueueName(TRAINING_SPOT), QueueName(TRAINING_ON_DEMAND))

NAME_MAX = 63

_PREFIX = "training-"
_ARN = re.compile(r"arn:[a-z-]+:sagemaker:[a-z0-9-]*:[0-9]{12}:([a-z-]+)/(.+)")
_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")


def job_id(view: View, name: str) -> JobId:
    """The id of the job that stands for a caller's training job: `training-<name>`, or `training-<tenant>.<name>`."""
    tenant, given = split_name(view.kept(name))
    return JobId(f"{_PREFIX}{given}" if tenant == DEFAULT_TENANT else f"{_PREFIX}{tenant}.{given}")


def job_ids(view: View, name: str) -> list[JobId]:
    """The ids that a training job of this name can have: those of earlier versions did not say the tenant."""
    return list(dict.fromkeys([job_id(view, name), JobId(_PREFIX + given_name(view.kept(name)))]))


def check_name(name: str) -> str:
    """The name itself, if a new training job can be called so."""
    if _NAME.fullmatch(name) is None:
        raise invalid(
            f"1 validation error detected: Value {shown(name)!r} at 'trainingJobName' failed to satisfy constraint:"
            f" Member must satisfy regular expression pattern: {_NAME.pattern}"
        )
    return name


def training_arn(region: str, account_id: str, name: str) -> str:
    """`...:training-job/<name>`."""
    return f"arn:aws:sagemaker:{region}:{account_id}:training-job/{name}"


def split_arn(arn: str) -> tuple[str, str]:
    """The kind and the name that an ARN means; one daemon has one account and serves every region."""
    match = _ARN.fullmatch(arn)
    if match is None:
        raise invalid(f"Invalid ARN {shown(arn)}")
    return match[1], match[2]


def name_in_arn(arn: str) -> str:
    """The training job that an ARN means."""
    kind, name = split_arn(arn)
    if kind != "training-job":
        raise invalid(
            f"Windfall has training jobs, models, endpoint configurations and endpoints, and {kind} cannot have"
            f" tags here; its ARN was {shown(arn)}"
        )
    if _NAME.fullmatch(given_name(name)) is None:
        raise not_found()
    return name
