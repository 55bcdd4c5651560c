"""GetCallerIdentity: the account, and a name for the key that signed.

Decides what a key is called as an IAM user: its tenant is the path and its id the name. Windfall has no roles
to assume and no session tokens to give. Must not know secrets.
"""

from __future__ import annotations

from typing import Any

from windfall.aws_api.protocol.query import QueryService
from windfall.aws_api.protocol.service import Call, Caller, Role


def sts_service(account_id: str) -> QueryService:
    """AWS STS for one account."""

    async def get_caller_identity(call: Call) -> dict[str, Any]:
        return {
            "UserId": call.caller.access_key_id,
            "Account": account_id,
            "Arn": caller_arn(account_id, call.caller),
        }

    return QueryService("sts", {"GetCallerIdentity": get_caller_identity}, {"GetCallerIdentity": Role.READ})


def caller_arn(account_id: str, caller: Caller) -> str:
    """The ARN of the user that a key stands for; a tenant's name holds only what IAM allows in a path."""
    return f"arn:aws:iam::{account_id}:user/{caller.tenant}/{caller.access_key_id}"
