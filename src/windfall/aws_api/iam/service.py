"""IAM for clients that look at a role before they name it, as the SageMaker SDK does: every role exists and suffices.

Decides what such a role looks like. What a job may do follows from the key that submitted it, never from its role, so
there is nothing to administer here. Must not know keys or jobs.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from windfall.aws_api.protocol.query import QueryService
from windfall.aws_api.protocol.service import Call, Role

#: Roles are older than everything that asks for them.
_CREATED_S = 1_577_836_800
_SERVICES = (
    "batch.amazonaws.com",
    "ecs-tasks.amazonaws.com",
    "sagemaker.amazonaws.com",
    "scheduler.amazonaws.com",
)


def iam_service(account_id: str) -> QueryService:
    """AWS IAM for one account."""

    async def get_role(call: Call) -> dict[str, Any]:
        return {"Role": _role(account_id, call.params["RoleName"])}

    async def simulate(call: Call) -> dict[str, Any]:
        resources = call.params.get("ResourceArns") or ["*"]
        results = [
            {"EvalActionName": action, "EvalResourceName": resource, "EvalDecision": "allowed"}
            for action in call.params["ActionNames"]
            for resource in resources
        ]
        return {"EvaluationResults": results, "IsTruncated": False}

    async def no_policies(_: Call) -> dict[str, Any]:
        return {"AttachedPolicies": [], "IsTruncated": False}

    handlers = {
        "GetRole": get_role,
        "SimulatePrincipalPolicy": simulate,
        "ListAttachedRolePolicies": no_policies,
    }
    return QueryService("iam", handlers, dict.fromkeys(handlers, Role.READ))


def _role(account_id: str, name: str) -> dict[str, Any]:
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": {"Service": list(_SERVICES)}, "Action": "sts:AssumeRole"}
        ],
    }
    return {
        "Path": "/",
        "RoleName": name,
        "RoleId": "AROA" + hashlib.sha256(name.encode()).hexdigest()[:17].upper(),
        "Arn": f"arn:aws:iam::{account_id}:role/{name}",
        "CreateDate": _CREATED_S,
        "AssumeRolePolicyDocument": json.dumps(trust),
        "MaxSessionDuration": 3600,
    }
