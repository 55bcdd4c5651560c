"""Real boto3 clients against a real server."""

from __future__ import annotations

import json
import logging
import time
import urllib.error
import urllib.request

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.unit.aws_api.protocol.live_server import Live, live_server
from windfall.aws_api.protocol.keys import Key, Role, revoke_key
from windfall.aws_api.protocol.sigv4 import sign

JOB = {"jobName": "train", "jobQueue": "q", "jobDefinition": "d:1"}


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with live_server(tmp_path_factory.mktemp("live")) as live:
        yield live


@pytest.fixture
def client_of(live):
    clients = []

    def make(service: str, key: Key | None = None, **options):
        key = key or live.admin
        client = boto3.client(
            service,
            endpoint_url=live.url,
            region_name=options.pop("region", "eu-central-2"),
            aws_access_key_id=key.access_key_id,
            aws_secret_access_key=options.pop("secret", key.secret_access_key),
            aws_session_token=options.pop("token", key.session_token),
            config=Config(retries={"total_max_attempts": 1}, **options),
        )
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


def error_of(call, **params) -> dict:
    with pytest.raises(ClientError) as caught:
        call(**params)
    return caught.value.response


def post(url: str, body: bytes = b"", headers: dict | None = None, method: str = "POST"):
    request = urllib.request.Request(url, data=body or None, headers=headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def test_submit_job_reaches_the_handler_as_a_plain_dict(live: Live, client_of):
    answer = client_of("batch").submit_job(
        **JOB, retryStrategy={"attempts": 2, "evaluateOnExit": [{"action": "Retry", "onExitCode": "1*"}]}
    )
    call = live.recorder.calls[-1]
    assert answer["jobId"] == "7c8c0b4e"
    assert answer["jobArn"] == "arn:aws:batch:eu-central-2:1:job/7c8c0b4e"
    assert answer["ResponseMetadata"]["RequestId"] == call.request_id
    assert call.params["retryStrategy"]["evaluateOnExit"] == [{"action": "Retry", "onExitCode": "1*"}]
    assert (call.service, call.operation, call.region) == ("batch", "SubmitJob", "eu-central-2")
    assert (call.caller.role, call.caller.tenant) == (Role.ADMIN, "default")
    assert call.size > 50


def test_longs_of_batch_stay_integers(client_of):
    assert client_of("batch").describe_jobs(jobs=["a"])["jobs"] == [
        {"jobId": "a", "createdAt": 1_700_000_000_123}
    ]


def test_an_arn_with_slashes_travels_in_the_path(live: Live, client_of):
    arn = "arn:aws:batch:eu-central-2:1:job-queue/team a/é+b%2F"
    batch = client_of("batch")
    assert batch.list_tags_for_resource(resourceArn=arn)["tags"] == {"arn": arn}
    batch.tag_resource(resourceArn=arn, tags={"k": "v"})
    assert live.recorder.calls[-1].params == {"resourceArn": arn, "tags": {"k": "v"}}
    batch.untag_resource(resourceArn=arn, tagKeys=["a b", "ü&="])
    assert live.recorder.calls[-1].params == {"resourceArn": arn, "tagKeys": ["a b", "ü&="]}


def test_logs_over_json_1_1(live: Live, client_of):
    answer = client_of("logs").get_log_events(
        logGroupName="/aws/batch/job", logStreamName="d/default/1", limit=5
    )
    assert answer["events"] == [{"timestamp": 1, "message": "grüezi"}]
    assert live.recorder.calls[-1].params["limit"] == 5


def test_an_error_of_a_handler_arrives_with_code_and_text(client_of):
    response = error_of(client_of("batch").cancel_job, jobId="j", reason="r")
    assert response["Error"]["Code"] == "ClientException"
    assert response["Error"]["Message"] == (
        "Error executing request, Exception : j does not exist, "
        f"RequestId: {response['ResponseMetadata']['RequestId']}"
    )


def test_a_fault_of_ours_tells_the_caller_nothing_and_the_log_everything(client_of, caplog):
    with caplog.at_level(logging.ERROR):
        response = error_of(client_of("batch").terminate_job, jobId="j", reason="r")
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 500
    assert response["Error"]["Code"] == "InternalFailure"
    assert "secret" not in str(response)
    record = next(record for record in caplog.records if "failed" in record.message)
    assert response["ResponseMetadata"]["RequestId"] in record.message
    assert record.exc_info is not None


def test_validation_speaks_each_service_s_code(client_of):
    logs = error_of(
        client_of("logs", parameter_validation=False).get_log_events, logStreamName="s", logGroupName="a b"
    )
    assert logs["Error"] == {
        "Code": "InvalidParameterException",
        "Message": "1 validation error detected: Value 'a b' at 'logGroupName' failed to satisfy constraint: "
        r"Member must satisfy regular expression pattern: [\.\-_/#A-Za-z0-9]+",
    }
    batch = error_of(client_of("batch", parameter_validation=False).submit_job, jobName="x", jobQueue="q")
    assert batch["Error"]["Code"] == "ClientException"
    assert "Value null at 'jobDefinition' failed to satisfy" in batch["Error"]["Message"]


def test_an_operation_without_behaviour_is_named(client_of):
    batch = error_of(client_of("batch").describe_scheduling_policies, arns=["a"])
    assert batch["Error"]["Code"] == "ClientException"
    assert "Windfall does not support DescribeSchedulingPolicies yet." in batch["Error"]["Message"]
    logs = error_of(client_of("logs").create_log_group, logGroupName="g")
    assert logs["Error"]["Code"] == "UnsupportedOperation"


def test_roles(live: Live, client_of):
    reader = client_of("batch", live.new_key(Role.READ))
    assert reader.describe_jobs(jobs=["a"])["jobs"]
    refused = error_of(reader.submit_job, **JOB)
    assert refused["ResponseMetadata"]["HTTPStatusCode"] == 403
    assert refused["Error"]["Code"] == "AccessDeniedException"
    assert "needs submit" in refused["Error"]["Message"]
    assert client_of("batch", live.new_key(Role.SUBMIT, tenant="vision")).submit_job(**JOB)["jobId"]
    assert live.recorder.calls[-1].caller.tenant == "vision"


def test_wrong_secret_unknown_key_revoked_key(live: Live, client_of):
    wrong = error_of(client_of("batch", secret="nonsense").describe_jobs, jobs=["a"])
    assert wrong["Error"]["Code"] == "InvalidSignatureException"
    key = live.new_key(Role.READ)
    assert client_of("batch", key).describe_jobs(jobs=["a"])["jobs"]
    revoke_key(live.keys_path, key.access_key_id, now=3)
    revoked = error_of(client_of("batch", key).describe_jobs, jobs=["a"])
    assert revoked["Error"]["Code"] == "UnrecognizedClientException"


def test_session_tokens(live: Live, client_of):
    key = live.new_key(Role.READ, with_session_token=True)
    assert client_of("batch", key).describe_jobs(jobs=["a"])["jobs"]
    for token in (None, "another"):
        refused = error_of(client_of("batch", key, token=token).describe_jobs, jobs=["a"])
        assert refused["Error"]["Code"] == "UnrecognizedClientException"
    unasked = error_of(client_of("batch", live.admin, token="unasked").describe_jobs, jobs=["a"])
    assert unasked["Error"]["Code"] == "UnrecognizedClientException"


def test_a_presigned_url_works(live: Live, client_of):
    url = client_of("batch").generate_presigned_url("list_tags_for_resource", {"resourceArn": "arn:aws:x/y"})
    status, _, body = post(url, method="GET")
    assert (status, json.loads(body)) == (200, {"tags": {"arn": "arn:aws:x/y"}})
    assert post(url.replace("arn", "brn"), method="GET")[0] == 403


def test_a_service_that_is_not_served_is_named(client_of):
    response = error_of(client_of("scheduler").list_schedules)
    assert response["Error"]["Code"] == "UnknownOperationException"
    assert "does not serve scheduler" in response["Error"]["Message"]


def test_health_needs_no_signature_and_everything_else_does(live: Live):
    status, headers, body = post(live.url + "/healthz", method="GET")
    assert (status, json.loads(body)) == (200, {"status": "ok"})
    assert headers["x-amzn-requestid"]
    for method, path in [("POST", "/v1/submitjob"), ("GET", "/"), ("POST", "/healthz"), ("DELETE", "/x")]:
        status, headers, body = post(live.url + path, method=method)
        assert status == 403
        assert headers["x-amzn-errortype"] == "MissingAuthenticationTokenException"
        assert json.loads(body)["__type"] == "MissingAuthenticationTokenException"
    assert post(live.url + "/v1/submitjob", method="HEAD")[0] == 403


def test_our_own_operations_and_our_own_signing(live: Live):
    def call(path: str, body: bytes, method: str = "POST"):
        headers = sign(
            method=method,
            url=live.url + path,
            headers={"content-type": "application/json"},
            body=body,
            access_key_id=live.admin.access_key_id,
            secret_access_key=live.admin.secret_access_key,
            region="local",
            service="windfall",
            now=time.time(),
        )
        status, _, answer = post(live.url + path, body, headers, method)
        return status, json.loads(answer)

    assert call("/windfall/v1/whoami", b'{"a":[1]}') == (200, {"tenant": "default", "params": {"a": [1]}})
    assert call("/windfall/v1/whoami", b"") == (200, {"tenant": "default", "params": {}})
    assert call("/windfall/v1/nobody", b"{}")[1]["__type"] == "UnknownOperationException"
    assert call("/whoami", b"{}")[0] == 404
    assert call("/windfall/v1/whoami", b'{"a":"\\u0000"}')[1]["__type"] == "SerializationException"
    assert call("/windfall/v1/whoami", b'{"a":' + b"[" * 50 + b"]" * 50 + b"}")[0] == 400
