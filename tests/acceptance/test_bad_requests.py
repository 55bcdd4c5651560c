"""A thousand requests, malformed, oversized, unsigned, mis-signed or out of order: each gets a 4xx that says why.

All come from one seed, which is printed when one of them is answered otherwise. At the end the daemon still runs a job.
"""

from __future__ import annotations

import http.client
import json
import random
import string
import time
import uuid
from typing import Any
from urllib.parse import urlsplit

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from windfall.aws_api.protocol.sigv4 import sign

SEED = 20_261_115
REQUESTS = 1_000
JSON = "application/json"
LOGS = {"content-type": "application/x-amz-json-1.1"}


class Sender:
    """Sends one request over one connection, signed or not, and reads the answer's error."""

    def __init__(self, windfall: RunningWindfall) -> None:
        environment = windfall.environment
        self.key = environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]
        self.url = windfall.url

    def signed(
        self,
        path: str,
        body: bytes,
        *,
        service: str = "batch",
        method: str = "POST",
        headers: dict[str, str] | None = None,
        key: tuple[str, str] | None = None,
        now: float | None = None,
    ) -> dict[str, str]:
        """The headers of a signed request."""
        access, secret = key or self.key
        return sign(
            method=method,
            url=self.url + path,
            headers=headers or {"content-type": JSON},
            body=body,
            access_key_id=access,
            secret_access_key=secret,
            region="us-east-1",
            service=service,
            now=now or time.time(),
        )

    def send(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Send it as it is, and read the whole answer."""
        where = urlsplit(self.url)
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=120)
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


def noise(dice: random.Random, most: int = 40) -> str:
    return "".join(dice.choices(string.printable + "äß漢\x01", k=dice.randint(0, most)))


def junk(dice: random.Random, depth: int = 3) -> Any:
    """Any JSON value."""
    kind = dice.randrange(8 if depth else 6)
    if kind == 6:
        return [junk(dice, depth - 1) for _ in range(dice.randrange(4))]
    if kind == 7:
        return {noise(dice, 8): junk(dice, depth - 1) for _ in range(dice.randrange(4))}
    return dice.choice([None, True, -1, 2**70, 1.5e300, noise(dice), "", [], {}])


class Bad:
    """Makes bad requests of every kind; each method answers (method, path, headers, body)."""

    def __init__(self, sender: Sender, dice: random.Random) -> None:
        self.sender, self.dice = sender, dice

    def _batch(self, operation: str, params: Any) -> tuple[str, str, dict[str, str], bytes]:
        path, body = f"/v1/{operation.lower()}", json.dumps(params).encode()
        return "POST", path, self.sender.signed(path, body), body

    def unsigned(self):
        return "POST", "/v1/describejobqueues", {"content-type": JSON}, b"{}"

    def unknown_key(self):
        key = "".join(self.dice.choices(string.ascii_letters + string.digits, k=20)), "secret"
        return "POST", "/v1/listjobs", self.sender.signed("/v1/listjobs", b"{}", key=key), b"{}"

    def wrong_secret(self):
        return (
            "POST",
            "/v1/listjobs",
            self.sender.signed("/v1/listjobs", b"{}", key=(self.sender.key[0], "x")),
            b"{}",
        )

    def other_body(self):
        return "POST", "/v1/listjobs", self.sender.signed("/v1/listjobs", b"{}"), b'{"jobQueue": "q"}'

    def other_time(self):
        then = time.time() + self.dice.choice([-1, 1]) * self.dice.randint(400, 10**6)
        return "POST", "/v1/listjobs", self.sender.signed("/v1/listjobs", b"{}", now=then), b"{}"

    def broken_authorization(self):
        headers = self.sender.signed("/v1/listjobs", b"{}")
        text = headers["authorization"]
        cut = self.dice.randrange(len(text))
        headers["authorization"] = (text[:cut] + self.dice.choice("x= ,/") + text[cut + 1 :]).strip() or "x"
        if headers["authorization"] == text:
            headers["authorization"] += "0"
        return "POST", "/v1/listjobs", headers, b"{}"

    def not_json(self):
        body = self.dice.choice([b"{", b"[]", b"\xff\xfe", b'"text"', b"nul", b'{"a":' * 5_000, b"{}x", b"-"])
        return "POST", "/v1/submitjob", self.sender.signed("/v1/submitjob", body), body

    def half_a_character(self):
        value = self.dice.choice([r'"\ud800"', r'"a\udfffb"', r'"\u0000"'])
        sent = '{"jobName": "a", "jobQueue": "q", "jobDefinition": "true", ' + self.dice.choice(
            [
                '"parameters": {"a": %s}}',
                '"tags": {"k": %s}}',
                '"containerOverrides": {"environment": [{"name": "N", "value": %s}]}}',
                '"containerOverrides": {"command": [%s]}}',
            ]
        )
        body = (sent % value).encode()
        return "POST", "/v1/submitjob", self.sender.signed("/v1/submitjob", body), body

    def oversized(self):
        body = json.dumps({"jobName": "x" * self.dice.randint(1_100_000, 1_300_000)}).encode()
        return "POST", "/v1/submitjob", self.sender.signed("/v1/submitjob", body), body

    def job_too_large(self):
        environment = [{"name": f"N{i}", "value": "x" * 1_000} for i in range(40)]
        params = {"jobName": "a", "jobQueue": "q", "jobDefinition": "true"}
        return self._batch("SubmitJob", params | {"containerOverrides": {"environment": environment}})

    def unknown_path(self):
        path = "/v1/" + "".join(self.dice.choices(string.ascii_lowercase, k=9))
        return "POST", path, self.sender.signed(path, b"{}"), b"{}"

    def unsupported_operation(self):
        target = self.dice.choice(["CreateExportTask", "PutLogEvents", "StartQuery"])
        headers = {"content-type": LOGS["content-type"], "x-amz-target": f"Logs_20140328.{target}"}
        return "POST", "/", self.sender.signed("/", b"{}", service="logs", headers=headers), b"{}"

    def wrong_types(self):
        name = self.dice.choice(
            ["jobName", "jobQueue", "jobDefinition", "dependsOn", "arrayProperties", "timeout", "tags"]
        )
        wrong = (
            self.dice.choice([7, [7], {"x": [1]}, True])
            if name != "tags"
            else self.dice.choice([7, [7], True])
        )
        params = {"jobName": "a", "jobQueue": "q", "jobDefinition": "true", name: wrong}
        if name in ("arrayProperties", "timeout") and isinstance(wrong, dict):
            params[name] = {"size": "ten", "attemptDurationSeconds": "ten"}
        return self._batch("SubmitJob", params)

    def out_of_range(self):
        wrong = self.dice.choice(
            [
                {"arrayProperties": {"size": self.dice.choice([1, 0, -5, 10_001])}},
                {"timeout": {"attemptDurationSeconds": self.dice.randint(0, 59)}},
                {"retryStrategy": {"attempts": self.dice.choice([0, 11, -1])}},
                {"retryStrategy": {"evaluateOnExit": [{"action": "RETRY"}]}},
                {"dependsOn": [{"jobId": str(uuid.uuid4())} for _ in range(21)]},
                {"dependsOn": [{"type": "SEQUENTIAL"}]},
                {"jobName": "has space"},
                {"jobName": "-"},
                {"jobName": "x" * 129},
                {"containerOverrides": {"resourceRequirements": [{"type": "MEMORY", "value": "3"}]}},
                {"containerOverrides": {"resourceRequirements": [{"type": "GPU", "value": "half"}]}},
                {"containerOverrides": {"environment": [{"name": "AWS_BATCH_X", "value": "1"}]}},
                {"containerOverrides": {"command": ["Ref::missing"]}},
                {"shareIdentifier": "a"},
                {"nodeOverrides": {"numNodes": 2}},
                {"tags": {f"k{i}": "v" for i in range(51)}},
            ]
        )
        return self._batch("SubmitJob", {"jobName": "a", "jobQueue": "q", "jobDefinition": "true"} | wrong)

    def out_of_order(self):
        operation, params = self.dice.choice(
            [
                ("SubmitJob", {"jobName": "a", "jobQueue": "no-such", "jobDefinition": "true"}),
                ("SubmitJob", {"jobName": "a", "jobQueue": "q", "jobDefinition": "no-such"}),
                ("SubmitJob", {"jobName": "a", "jobQueue": "q", "jobDefinition": "true:99"}),
                (
                    "SubmitJob",
                    {
                        "jobName": "a",
                        "jobQueue": "q",
                        "jobDefinition": "true",
                        "dependsOn": [{"jobId": str(uuid.uuid4())}],
                    },
                ),
                ("DeleteComputeEnvironment", {"computeEnvironment": "q"}),
                ("DeleteJobQueue", {"jobQueue": "q"}),
                ("UpdateJobQueue", {"jobQueue": "no-such", "priority": 1}),
                (
                    "CreateJobQueue",
                    {
                        "jobQueueName": "q",
                        "priority": 1,
                        "computeEnvironmentOrder": [{"order": 1, "computeEnvironment": "q"}],
                    },
                ),
                (
                    "CreateJobQueue",
                    {
                        "jobQueueName": "r",
                        "priority": 1,
                        "computeEnvironmentOrder": [{"order": 1, "computeEnvironment": "no-such"}],
                    },
                ),
                ("DeregisterJobDefinition", {"jobDefinition": "no-such:1"}),
                ("ListJobs", {}),
                ("ListJobs", {"jobQueue": "q", "arrayJobId": "x"}),
                ("ListJobs", {"jobQueue": "q", "nextToken": noise(self.dice) or "x"}),
                ("DescribeJobs", {"jobs": [str(uuid.uuid4()) for _ in range(101)]}),
            ]
        )
        return self._batch(operation, params)

    def bad_training(self):
        target, params = self.dice.choice(
            [
                ("DescribeTrainingJob", {"TrainingJobName": "no-such"}),
                ("DescribeTrainingJob", {"TrainingJobName": junk(self.dice)}),
                ("StopTrainingJob", {"TrainingJobName": "no-such"}),
                ("DeleteTrainingJob", {}),
                ("ListTrainingJobs", {"MaxResults": 10**6}),
                ("ListTrainingJobs", {"NextToken": noise(self.dice) or "x"}),
                ("CreateTrainingJob", {"TrainingJobName": "a", "RoleArn": "no-arn"}),
                ("CreateTrainingJob", {"TrainingJobName": noise(self.dice), "OutputDataConfig": 7}),
                ("CreateEndpoint", {"EndpointName": "e", "EndpointConfigName": "c"}),
                ("NoSuchOperation", {}),
            ]
        )
        body = json.dumps(params).encode()
        headers = LOGS | {"x-amz-target": f"SageMaker.{target}"}
        return "POST", "/", self.sender.signed("/", body, service="sagemaker", headers=headers), body

    def bad_logs(self):
        target, params = self.dice.choice(
            [
                ("GetLogEvents", {"logGroupName": "/no/such", "logStreamName": "x"}),
                ("GetLogEvents", {"logGroupName": "/aws/batch/job", "logStreamName": "../../keys.json"}),
                ("GetLogEvents", {"logStreamName": "x", "logGroupName": "/aws/batch/job", "limit": 10**9}),
                ("FilterLogEvents", {"logGroupName": "/aws/batch/job", "filterPattern": "{ $.a = 1 }"}),
                ("FilterLogEvents", {"logGroupName": "/aws/batch/job", "nextToken": noise(self.dice) or "x"}),
                ("DescribeLogStreams", {}),
                ("StartQuery", {"queryString": "x", "startTime": 1, "endTime": 2}),
                ("NoSuchOperation", {}),
            ]
        )
        body = json.dumps(params).encode()
        headers = LOGS | {"x-amz-target": f"Logs_20140328.{target}"}
        return "POST", "/", self.sender.signed("/", body, service="logs", headers=headers), body

    def bad_own(self):
        operation, params = self.dice.choice(
            [
                ("Why", {}),
                ("Why", {"jobId": str(uuid.uuid4())}),
                ("Why", {"jobId": f"{uuid.uuid4()}:²"}),
                ("AddImage", {"pattern": "x", "directory": "relative"}),
                ("AddImage", {"pattern": "", "entrypoint": 7}),
                ("RemoveImage", {"pattern": "no-such"}),
                ("AddStorage", {"uri": "nowhere"}),
                ("AddStorage", {"uri": "file:///"}),
                ("AddStorage", {"uri": 7, "tenant": []}),
                ("RemoveStorage", {"uri": "file:///no-such"}),
                ("Nothing", {}),
                ("FindJobs", {"text": 7}),
            ]
        )
        path, body = f"/windfall/v1/{operation}", json.dumps(params).encode()
        return "POST", path, self.sender.signed(path, body, service="windfall"), body

    def random_definition(self):
        container = {
            "image": junk(self.dice),
            "resourceRequirements": junk(self.dice),
            "command": junk(self.dice),
        }
        params = {"jobDefinitionName": "junk", "type": "container", "containerProperties": container}
        return self._batch("RegisterJobDefinition", params | {"jobDefinitionName": "has space"})

    def other_service(self):
        service = self.dice.choice(["s3", "ec2", "scheduler", "windfall2"])
        return "POST", "/", self.sender.signed("/", b"", service=service), b""

    def other_method(self):
        method = self.dice.choice(["GET", "PUT", "DELETE", "PATCH"])
        return method, "/v1/submitjob", self.sender.signed("/v1/submitjob", b"", method=method), b""


def test_a_thousand_bad_requests(windfall):
    batch = a_queue(windfall)
    a_definition(batch, "true", "true")
    sender, dice = Sender(windfall), random.Random(SEED)
    bad = Bad(sender, dice)
    kinds = [getattr(bad, name) for name in vars(Bad) if not name.startswith("_")]
    before = windfall.windfall("jobs", "--all", "--json").stdout
    for number in range(REQUESTS):
        kind = kinds[number % len(kinds)]
        request = kind()
        status, body = sender.send(*request)
        where = f"request {number} of seed {SEED} ({kind.__name__}): {request[1]} {request[3][:300]!r}"
        assert 400 <= status < 500, f"{where}\nwas answered {status} {body[:500]!r}"
        error = json.loads(body)
        message = error.get("message") or error.get("Message")
        assert message, where
        assert "Traceback" not in message, where
    assert windfall.windfall("jobs", "--all", "--json").stdout == before, (
        "a refused request changed something"
    )
    [job] = windfall.wait_for([batch.submit_job(jobName="good", jobQueue="q", jobDefinition="true")["jobId"]])
    assert job["status"] == "SUCCEEDED"
