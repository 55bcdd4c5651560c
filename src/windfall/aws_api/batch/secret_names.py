"""From what AWS calls a secret (`valueFrom`) to the name under which this daemon keeps its own.

Decides names only: the last part of an ARN or path. Must not look whether a secret exists; the agent does, at the
start of each attempt.
"""

from __future__ import annotations

import re

from windfall.aws_api.batch.rejections import client_exception, shown
from windfall.jobs.containers import SECRET_NAME, Secret

#: What a variable, and a file below /run/secrets, may be called.
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,199}", re.ASCII)
#: What Secrets Manager puts behind a secret's own name; six lower-case letters are more likely to be a word of it.
_SUFFIX = re.compile(r"-(?![a-z]{6}$)[A-Za-z0-9]{6}$", re.ASCII)
_SECRETS_MANAGER = re.compile(r"arn:[a-z-]+:secretsmanager:[a-z0-9-]*:[0-9]*:secret:(.+)", re.ASCII)
_PARAMETER = re.compile(r"arn:[a-z-]+:ssm:[a-z0-9-]*:[0-9]*:parameter/(.+)", re.ASCII)
_CURRENT = "AWSCURRENT"
#: Variables that decide which GPUs a job sees and how its processes are found; a secret must not set them.
_RESERVED = ("AWS_BATCH", "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "WINDFALL_")


def secret_of(name: str, value_from: str) -> Secret:
    """The secret that an entry of `secrets` asks for: by Secrets Manager ARN, parameter ARN or plain name."""
    if _VARIABLE.fullmatch(name) is None or name.startswith(_RESERVED):
        raise client_exception(
            f"Secret name {shown(name)!r} cannot be an environment variable: use letters, digits and underscores, the"
            f" first no digit, and none of {', '.join(_RESERVED)} at the beginning"
        )
    key = ""
    if whole := _SECRETS_MANAGER.fullmatch(value_from):
        path, key = _secrets_manager(whole[1], value_from)
    elif parameter := _PARAMETER.fullmatch(value_from):
        path = parameter[1]
    elif value_from.startswith("arn:"):
        raise _not_valid(value_from, "it must be the ARN of a Secrets Manager secret or of an SSM parameter")
    else:
        path = value_from
    last = path.rstrip("/").rpartition("/")[2]
    if SECRET_NAME.fullmatch(last) is None:
        raise _not_valid(value_from, "its last part must consist of letters, digits, '_', '.' and '-'")
    return Secret(name, last, key)


def _secrets_manager(text: str, value_from: str) -> tuple[str, str]:
    """Path and JSON member of `NAME-SUFFIX[:key[:stage[:version]]]`."""
    path, *rest = text.split(":")
    key, stage, version = (*rest, "", "", "")[:3]
    if len(rest) > 3 or version or stage not in ("", _CURRENT):
        raise _not_valid(value_from, "Windfall keeps one version of a secret; leave out stage and version")
    return _SUFFIX.sub("", path), key


def _not_valid(value_from: str, why: str) -> Exception:
    return client_exception(f"valueFrom {shown(value_from)!r} is not valid: {why}")
