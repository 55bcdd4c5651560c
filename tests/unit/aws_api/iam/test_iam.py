"""What clients ask IAM about a role before they name it, parsed by botocore as a client would."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import urlencode

from botocore.parsers import create_parser
from botocore.session import get_session

from windfall.aws_api.iam.service import iam_service
from windfall.aws_api.protocol.keys import Role
from windfall.aws_api.protocol.request import HttpRequest
from windfall.aws_api.protocol.service import Caller

ACCOUNT = "210987654321"


def asked(operation, **members):
    form = urlencode({"Action": operation, "Version": "2010-05-08", **members}).encode()
    request = HttpRequest("POST", "/", "", {}, form)
    answer = asyncio.run(iam_service(ACCOUNT).answer(request, Caller("KEY", Role.READ, "t"), "r", "id"))
    shape = get_session().get_service_model("iam").operation_model(operation).output_shape
    raw = {"status_code": answer.status, "headers": {}, "body": answer.body}
    return create_parser("query").parse(raw, shape)


def test_every_role_exists_and_trusts_the_services_that_use_it():
    role = asked("GetRole", RoleName="Training")["Role"]
    assert role["Arn"] == f"arn:aws:iam::{ACCOUNT}:role/Training"
    assert role["RoleName"] == "Training"
    document = role["AssumeRolePolicyDocument"]
    trust = document if isinstance(document, dict) else json.loads(document)
    assert "sagemaker.amazonaws.com" in trust["Statement"][0]["Principal"]["Service"]


def test_every_role_suffices():
    answer = asked(
        "SimulatePrincipalPolicy",
        PolicySourceArn=f"arn:aws:iam::{ACCOUNT}:role/Training",
        **{"ActionNames.member.1": "s3:GetObject", "ActionNames.member.2": "sagemaker:CreateTrainingJob"},
    )
    decisions = {each["EvalActionName"]: each["EvalDecision"] for each in answer["EvaluationResults"]}
    assert decisions == {"s3:GetObject": "allowed", "sagemaker:CreateTrainingJob": "allowed"}
    assert asked("ListAttachedRolePolicies", RoleName="Training")["AttachedPolicies"] == []
