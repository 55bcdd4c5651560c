"""The table of AWS Batch's operations that Windfall has: who may call each, and what answers it.

An operation that AWS has and this table has not is refused by name, with nothing changed. Must not know
what any operation does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from windfall.aws_api.batch import (
    consumable_resources,
    definitions,
    environments,
    job_details,
    listing,
    queues,
    quota_shares,
    scheduling_policies,
    service_environments,
    service_jobs,
    stopping,
    submitting,
    tagging,
)
from windfall.aws_api.batch.context import S3_FOR_ALL, BatchContext
from windfall.aws_api.batch.rejections import CLIENT_EXCEPTION, wrap_error
from windfall.aws_api.protocol.service import Call, ModelledService, Role
from windfall.aws_api.tenants.gate import PerView
from windfall.control.ports import CorePort
from windfall.jobs.storage import StorageLayout

DEFAULT_ACCOUNT_ID = "123456789012"

Work = Callable[[BatchContext, Call], Awaitable[dict[str, Any]]]

OPERATIONS: Mapping[str, tuple[Role, Work]] = {
    "CreateComputeEnvironment": (Role.ADMIN, environments.create_compute_environment),
    "UpdateComputeEnvironment": (Role.ADMIN, environments.update_compute_environment),
    "DescribeComputeEnvironments": (Role.READ, environments.describe_compute_environments),
    "DeleteComputeEnvironment": (Role.ADMIN, environments.delete_compute_environment),
    "CreateJobQueue": (Role.ADMIN, queues.create_job_queue),
    "UpdateJobQueue": (Role.ADMIN, queues.update_job_queue),
    "DescribeJobQueues": (Role.READ, queues.describe_job_queues),
    "DeleteJobQueue": (Role.ADMIN, queues.delete_job_queue),
    "GetJobQueueSnapshot": (Role.READ, queues.get_job_queue_snapshot),
    "CreateServiceEnvironment": (Role.ADMIN, service_environments.create_service_environment),
    "UpdateServiceEnvironment": (Role.ADMIN, service_environments.update_service_environment),
    "DescribeServiceEnvironments": (Role.READ, service_environments.describe_service_environments),
    "DeleteServiceEnvironment": (Role.ADMIN, service_environments.delete_service_environment),
    "SubmitServiceJob": (Role.SUBMIT, service_jobs.submit_service_job),
    "DescribeServiceJob": (Role.READ, service_jobs.describe_service_job),
    "ListServiceJobs": (Role.READ, service_jobs.list_service_jobs),
    "UpdateServiceJob": (Role.SUBMIT, service_jobs.update_service_job),
    "TerminateServiceJob": (Role.SUBMIT, service_jobs.terminate_service_job),
    "TerminateServiceJobs": (Role.SUBMIT, service_jobs.terminate_service_jobs),
    "RegisterJobDefinition": (Role.SUBMIT, definitions.register_job_definition),
    "DescribeJobDefinitions": (Role.READ, definitions.describe_job_definitions),
    "DeregisterJobDefinition": (Role.SUBMIT, definitions.deregister_job_definition),
    "SubmitJob": (Role.SUBMIT, submitting.submit_job),
    "DescribeJobs": (Role.READ, job_details.describe_jobs),
    "ListJobs": (Role.READ, listing.list_jobs),
    "CancelJob": (Role.SUBMIT, stopping.cancel_job),
    "CancelJobs": (Role.SUBMIT, stopping.cancel_jobs),
    "TerminateJob": (Role.SUBMIT, stopping.terminate_job),
    "TerminateJobs": (Role.SUBMIT, stopping.terminate_jobs),
    "CreateSchedulingPolicy": (Role.ADMIN, scheduling_policies.create_scheduling_policy),
    "UpdateSchedulingPolicy": (Role.ADMIN, scheduling_policies.update_scheduling_policy),
    "DeleteSchedulingPolicy": (Role.ADMIN, scheduling_policies.delete_scheduling_policy),
    "DescribeSchedulingPolicies": (Role.READ, scheduling_policies.describe_scheduling_policies),
    "ListSchedulingPolicies": (Role.READ, scheduling_policies.list_scheduling_policies),
    "CreateConsumableResource": (Role.ADMIN, consumable_resources.create_consumable_resource),
    "UpdateConsumableResource": (Role.ADMIN, consumable_resources.update_consumable_resource),
    "DeleteConsumableResource": (Role.ADMIN, consumable_resources.delete_consumable_resource),
    "DescribeConsumableResource": (Role.READ, consumable_resources.describe_consumable_resource),
    "ListConsumableResources": (Role.READ, consumable_resources.list_consumable_resources),
    "ListJobsByConsumableResource": (Role.READ, consumable_resources.list_jobs_by_consumable_resource),
    "CreateQuotaShare": (Role.ADMIN, quota_shares.create_quota_share),
    "UpdateQuotaShare": (Role.ADMIN, quota_shares.update_quota_share),
    "DescribeQuotaShare": (Role.READ, quota_shares.describe_quota_share),
    "ListQuotaShares": (Role.READ, quota_shares.list_quota_shares),
    "DeleteQuotaShare": (Role.ADMIN, quota_shares.delete_quota_share),
    "TagResource": (Role.SUBMIT, tagging.tag_resource),
    "UntagResource": (Role.SUBMIT, tagging.untag_resource),
    "ListTagsForResource": (Role.READ, tagging.list_tags_for_resource),
}


def batch_service(
    gate: CorePort,
    account_id: str,
    new_id: Callable[[], str],
    clock_ms: Callable[[], int],
    storage: StorageLayout = S3_FOR_ALL,
) -> ModelledService:
    """AWS Batch over a gate; `new_id` draws UUIDs and `clock_ms` returns the time in milliseconds."""
    contexts = PerView(BatchContext(gate, account_id, new_id, clock_ms, storage).seen_by)
    return ModelledService(
        "batch",
        {name: partial(_in_context, contexts, work) for name, (_, work) in OPERATIONS.items()},
        {name: role for name, (role, _) in OPERATIONS.items()},
        # AWS takes the action of a retry rule in any case, and answers it in lower case.
        lenient_enums=frozenset({"EvaluateOnExit.action", "ServiceJobEvaluateOnExit.action"}),
        wrap_error=wrap_error,
        validation_code=CLIENT_EXCEPTION,
        unsupported_code=CLIENT_EXCEPTION,
    )


def _in_context(contexts: PerView[BatchContext], work: Work, call: Call) -> Awaitable[dict[str, Any]]:
    return work(contexts.of(call.caller), call)
