"""The table of SageMaker's operations that Windfall has: who may call each, and what answers it.

An operation that AWS has and this table has not is refused by name, with nothing changed. Must not know what
any operation does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from windfall.aws_api.protocol.service import Call, ModelledService, Role
from windfall.aws_api.sagemaker import changing, creating, listing
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
    "AddTags": (Role.SUBMIT, changing.add_tags),
    "ListTags": (Role.READ, changing.list_tags),
    "DeleteTags": (Role.SUBMIT, changing.delete_tags),
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
        lenient_enums=frozenset({"ResourceConfig.InstanceType"}),
        tenant_names={"TrainingJobName": "/"},
        validation_code=VALIDATION,
        unsupported_code=VALIDATION,
    )


def _in_context(contexts: PerView[TrainingContext], work: Work, call: Call) -> Awaitable[dict[str, Any]]:
    return work(contexts.of(call.caller), call)
