"""The table of SageMaker's operations that Windfall has: who may call each, and what answers it.

An operation that AWS has and this table has not is refused by name, with nothing changed. Must not know what
any operation does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from windfall.aws_api.protocol.service import Call, ModelledService, Role
from windfall.aws_api.sagemaker import changing, creating, endpoints, hosted_tags, listing
from windfall.aws_api.sagemaker import model_declarations as declarations
from windfall.aws_api.sagemaker.context import TrainingContext, TrainingSettings
from windfall.aws_api.sagemaker.metrics import FinalMetrics
from windfall.aws_api.sagemaker.rejections import VALIDATION
from windfall.aws_api.tenants.gate import PerView
from windfall.control.ports import AttemptFiles, CorePort

__all__ = ["OPERATIONS", "TrainingSettings", "training_service"]

Work = Callable[[TrainingContext, Call], Awaitable[dict[str, Any]]]

OPERATIONS: Mapping[str, tuple[Role, Work]] = {
    "CreateTrainingJob": (Role.SUBMIT, creating.create_training_job),
    "DescribeTrainingJob": (Role.READ, listing.describe_training_job),
    "ListTrainingJobs": (Role.READ, listing.list_training_jobs),
    "StopTrainingJob": (Role.SUBMIT, changing.stop_training_job),
    "DeleteTrainingJob": (Role.SUBMIT, changing.delete_training_job),
    "UpdateTrainingJob": (Role.SUBMIT, changing.update_training_job),
    "CreateModel": (Role.SUBMIT, declarations.create_model),
    "DescribeModel": (Role.READ, declarations.describe_model),
    "ListModels": (Role.READ, declarations.list_models),
    "DeleteModel": (Role.SUBMIT, declarations.delete_model),
    "CreateEndpointConfig": (Role.SUBMIT, declarations.create_endpoint_config),
    "DescribeEndpointConfig": (Role.READ, declarations.describe_endpoint_config),
    "ListEndpointConfigs": (Role.READ, declarations.list_endpoint_configs),
    "DeleteEndpointConfig": (Role.SUBMIT, declarations.delete_endpoint_config),
    "CreateEndpoint": (Role.SUBMIT, endpoints.create_endpoint),
    "DescribeEndpoint": (Role.READ, endpoints.describe_endpoint),
    "ListEndpoints": (Role.READ, endpoints.list_endpoints),
    "UpdateEndpoint": (Role.SUBMIT, endpoints.update_endpoint),
    "UpdateEndpointWeightsAndCapacities": (Role.SUBMIT, endpoints.update_weights_and_capacities),
    "DeleteEndpoint": (Role.SUBMIT, endpoints.delete_endpoint),
    "AddTags": (Role.SUBMIT, hosted_tags.add_tags),
    "ListTags": (Role.READ, hosted_tags.list_tags),
    "DeleteTags": (Role.SUBMIT, hosted_tags.delete_tags),
}


def training_service(
    gate: CorePort,
    account_id: str,
    clock_ms: Callable[[], int],
    files: AttemptFiles,
    settings: TrainingSettings,
) -> ModelledService:
    """SageMaker training over a gate; `clock_ms` tells the time in milliseconds, `files` has the attempts' logs."""
    contexts = PerView(TrainingContext(gate, account_id, clock_ms, settings, FinalMetrics(files)).seen_by)
    return ModelledService(
        "sagemaker",
        {name: partial(_in_context, contexts, work) for name, (_, work) in OPERATIONS.items()},
        {name: role for name, (role, _) in OPERATIONS.items()},
        # The catalog checks instance types, with a more helpful error.
        lenient_enums=frozenset({"ResourceConfig.InstanceType", "ProductionVariant.InstanceType"}),
        tenant_names={
            "TrainingJobName": "/",
            "ModelName": "/",
            "EndpointConfigName": "/",
            "EndpointName": "/",
        },
        validation_code=VALIDATION,
        unsupported_code=VALIDATION,
    )


def _in_context(contexts: PerView[TrainingContext], work: Work, call: Call) -> Awaitable[dict[str, Any]]:
    return work(contexts.of(call.caller), call)
