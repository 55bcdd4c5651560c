"""Which of the daemon's secrets an entry of `secrets` means."""

from __future__ import annotations

import pytest

from windfall.aws_api.batch.container_options import secret_of
from windfall.aws_api.protocol.errors import ApiError
from windfall.jobs.containers import Secret

MANAGER = "arn:aws:secretsmanager:us-east-1:123456789012:secret"
PARAMETER = "arn:aws:ssm:eu-west-1:123456789012:parameter"


@pytest.mark.parametrize(
    ("value_from", "name", "key"),
    [
        ("hf-token", "hf-token", ""),
        ("/prod/db/password", "password", ""),
        (f"{PARAMETER}/prod/db/password", "password", ""),
        (f"{PARAMETER}/password", "password", ""),
        (f"{MANAGER}:hf-token-AbC123", "hf-token", ""),
        (f"{MANAGER}:prod/db-x1y2z3", "db", ""),
        # Six lower-case letters are a word of the name.
        (f"{MANAGER}:my-secret", "my-secret", ""),
        (f"{MANAGER}:my-secret-AbCdEf", "my-secret", ""),
        (f"{MANAGER}:db-AbCdEf:password::", "db", "password"),
        (f"{MANAGER}:db-AbCdEf:password:AWSCURRENT:", "db", "password"),
        (f"{MANAGER}:db-AbCdEf:::", "db", ""),
    ],
)
def test_the_last_part_is_the_name(value_from, name, key):
    assert secret_of("TOKEN", value_from) == Secret("TOKEN", name, key)


@pytest.mark.parametrize(
    "name", ["", "1ST", "A=B", "A/B", "AWS_BATCH_X", "NVIDIA_VISIBLE_DEVICES", "WINDFALL_ATTEMPT"]
)
def test_a_variable_that_is_none_or_not_the_jobs_to_set_is_refused(name):
    with pytest.raises(ApiError, match="cannot be an environment variable"):
        secret_of(name, "token")


@pytest.mark.parametrize(
    ("value_from", "text"),
    [
        ("", "its last part must consist of"),
        ("..", "its last part must consist of"),
        ("a/..", "its last part must consist of"),
        ("a b", "its last part must consist of"),
        ("arn:aws:s3:::bucket/key", "the ARN of a Secrets Manager secret or of an SSM parameter"),
        (f"{MANAGER}:db-AbCdEf:key:AWSPREVIOUS:", "keeps one version"),
        (f"{MANAGER}:db-AbCdEf:key::v1", "keeps one version"),
        (f"{MANAGER}:db-AbCdEf:a:::b", "keeps one version"),
    ],
)
def test_anything_else_is_refused(value_from, text):
    with pytest.raises(ApiError, match="valueFrom") as refused:
        secret_of("TOKEN", value_from)
    assert text in refused.value.message
