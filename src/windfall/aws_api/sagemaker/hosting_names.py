"""Names and ARNs of models, endpoint configurations and endpoints, and the sentences that say one is not there.

Decides how each is called and what SageMaker says of it. Must not know whether one exists.
"""

from __future__ import annotations

import re

from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.sagemaker.rejections import invalid, shown
from windfall.control.commands.hosting import HostedKind

LOG_GROUP = "/aws/sagemaker/Endpoints"
#: What a kind is called in SageMaker's sentences, and the member that has its name.
WORDS: dict[HostedKind, str] = {
    "model": "model",
    "endpoint-config": "endpoint configuration",
    "endpoint": "endpoint",
}
MEMBERS: dict[HostedKind, str] = {
    "model": "modelName",
    "endpoint-config": "endpointConfigName",
    "endpoint": "endpointName",
}
_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")


def hosted_arn(kind: HostedKind, region: str, account_id: str, name: str) -> str:
    """`...:endpoint/<name>` and so on."""
    return f"arn:aws:sagemaker:{region}:{account_id}:{kind}/{name}"


def check_hosted_name(kind: HostedKind, name: str) -> str:
    """The name itself, if something new can be called so."""
    if _NAME.fullmatch(name) is None:
        raise invalid(
            f"1 validation error detected: Value {shown(name)!r} at '{MEMBERS[kind]}' failed to satisfy constraint:"
            f" Member must satisfy regular expression pattern: {_NAME.pattern}"
        )
    return name


def no_such(kind: HostedKind, arn: str) -> ApiError:
    """The refusal of a name that stands for nothing; clients look for its first words."""
    return invalid(f'Could not find {WORDS[kind]} "{shown(arn)}".')


def exists(kind: HostedKind, arn: str) -> ApiError:
    """The refusal of a name that is taken; clients look for its first words."""
    return invalid(f'Cannot create already existing {WORDS[kind]} "{shown(arn)}".')
