"""The metrics of jobs through boto3's own client (CBOR), and the same by JSON and by the query protocol."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree as ET

import boto3
import cbor2
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.aws_api.batch.fakes import FakeStore
from windfall.advisor.samples import GpuSample, Recording, Sample, SampledGpu
from windfall.aws_api.cloudwatch.service import cloudwatch_service
from windfall.aws_api.cloudwatch.subjects import find, walk
from windfall.aws_api.protocol.cbor import cbor_refusal, read_cbor
from windfall.aws_api.protocol.errors import ApiError, SerializationError
from windfall.aws_api.protocol.request import HttpRequest
from windfall.aws_api.protocol.service import Caller, Role
from windfall.control.ports import JobPage
from windfall.jobs.attempts import Attempt
from windfall.jobs.ids import (
    AttemptToken,
    DefinitionKey,
    EnvironmentName,
    InstanceId,
    JobId,
    QueueName,
    TaskId,
)
from windfall.jobs.job import Job, JobKind, Submission
from windfall.jobs.nodes import Nodes
from windfall.jobs.resources import Resources
from windfall.jobs.retry import ONCE
from windfall.jobs.states import JobState
from windfall.jobs.tenants import View

T0 = 1_700_000_040_000  # the beginning of a minute
READER = Caller("WNDFREADER", Role.READ, "default")
GIB = 1 << 30


def a_job(job_id, name, kind, gpus=2):
    submission = Submission(
        name, QueueName("gpus"), DefinitionKey("d:1"), Resources(4, 8192, gpus), ONCE, kind=kind
    )
    job = Job(JobId(job_id), submission, JobState("RUNNING"), T0)
    job.attempts.append(
        Attempt(
            1,
            AttemptToken(f"{job_id}#1"),
            TaskId(f"task-{job_id}"),
            EnvironmentName("e"),
            InstanceId("i-1"),
            tuple(f"GPU-{n}" for n in range(gpus)),
            "stream",
            T0,
            started_at=T0,
        )
    )
    return job


def a_recording(job):
    gpus = tuple(SampledGpu(gpu_id, "NVIDIA H200", 1024) for gpu_id in job.attempts[0].gpu_ids)
    samples = tuple(
        Sample(
            T0 + 2_000 * number,
            2_000,
            cpu_cores=1.5,
            memory_bytes=2.0 * GIB,
            steps=3.0,
            gpus=tuple(GpuSample(busy=0.25 * (n + 1), memory_bytes=GIB / 2) for n in range(len(gpus))),
        )
        for number in range(60)
    )
    return Recording(job.attempts[0].token, 4.0, 8192, gpus, samples)


class Store(FakeStore):
    def jobs(self, ids):
        return [self.all_jobs[job_id] for job_id in ids if job_id in self.all_jobs]

    def list_jobs(self, wanted, limit, after):
        return JobPage(list(self.all_jobs.values())[:limit], None)


class Gate:
    def __init__(self, store):
        self.store = store

    async def read(self, question):
        return question(self.store)


@pytest.fixture
def service():
    store = Store()
    jobs = [
        a_job("job-1", "train", JobKind.BATCH),
        a_job("training-yolo", "yolo", JobKind.TRAINING),
        a_job("job-2", "cpu", JobKind.BATCH, gpus=0),
    ]
    store.all_jobs = {job.id: job for job in jobs}
    found = {job.attempts[0].task_id: a_recording(job) for job in jobs if job.id != "job-2"}
    return cloudwatch_service(Gate(store), found.get)


def ask(service, request):
    """As the application does: an error is answered in the protocol of the request."""
    try:
        return asyncio.run(service.answer(request, READER, "eu-west-1", "request-1"))
    except ApiError as error:
        cbor = b"smithy-protocol" in request.headers
        return cbor_refusal(error) if cbor else service.refuse_to(request)(error, "request-1")


@pytest.fixture
def client(service):
    made = boto3.client(
        "cloudwatch",
        region_name="eu-west-1",
        endpoint_url="http://windfall.test",
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=Config(retries={"total_max_attempts": 1}),
    )

    def answer(request, **_):
        place = urlsplit(request.url)
        headers = {
            name.lower().encode(): value if isinstance(value, bytes) else str(value).encode()
            for name, value in request.headers.items()
        }
        body = request.body if isinstance(request.body, bytes) else (request.body or "").encode()
        response = ask(service, HttpRequest(request.method, place.path, place.query, headers, body))

        class Raw:
            @staticmethod
            def stream(*_, **__):
                yield response.body

        names = {name.decode(): value.decode() for name, value in response.headers}
        names["content-type"] = response.content_type.decode()
        return AWSResponse(request.url, response.status, names, Raw())

    made.meta.events.register("before-send.cloudwatch", answer)
    return made


def moment(offset_s):
    return datetime.fromtimestamp(T0 / 1000 + offset_s, UTC)


def query(name, *, namespace="CWAgent", stat="Average", period=60, query_id="m1", **dimensions):
    return {
        "Id": query_id,
        "MetricStat": {
            "Metric": {
                "Namespace": namespace,
                "MetricName": name,
                "Dimensions": [{"Name": key, "Value": value} for key, value in dimensions.items()],
            },
            "Period": period,
            "Stat": stat,
        },
    }


def data(client, *queries, **more):
    answer = client.get_metric_data(
        MetricDataQueries=list(queries), StartTime=moment(0), EndTime=moment(120), **more
    )
    return {one["Id"]: one for one in answer["MetricDataResults"]}


def test_every_host_of_a_training_job_has_its_own_dimension():
    job, node = (
        a_job(job_id, "wide", JobKind.TRAINING, gpus=0) for job_id in ("training-wide", "training-wide#1")
    )
    nodes = Nodes(2, 0, peers=True, name_prefix="algo-")
    job.submission = node.submission = replace(job.submission, nodes=nodes)
    node.parent, node.index = job.id, 1
    store = Store()
    store.all_jobs = {job.id: job, node.id: node}
    found = find(
        store, View("default"), "/aws/sagemaker/TrainingJobs", "CPUUtilization", {"Host": "wide/algo-2"}
    )
    assert found is not None
    assert found.job is node
    assert found.dimensions == {"Host": "wide/algo-2"}
    assert (
        find(store, View("default"), "/aws/sagemaker/TrainingJobs", "CPUUtilization", {"Host": "wide/algo-3"})
        is None
    )
    store.list_jobs = lambda *_: JobPage([job], None)
    hosts = {metric.dimensions["Host"] for metric in walk(store, 10) if "Host" in metric.dimensions}
    assert hosts == {"wide/algo-1", "wide/algo-2"}


def test_a_training_job_has_sagemakers_names_counted_per_core_and_gpu(client):
    host = {"Host": "yolo/algo-1"}
    space = "/aws/sagemaker/TrainingJobs"
    found = data(
        client,
        query("CPUUtilization", namespace=space, query_id="cpu", **host),
        query("GPUUtilization", namespace=space, query_id="gpu", **host),
        query("GPUMemoryUtilization", namespace=space, query_id="gpumem", **host),
        query("MemoryUtilization", namespace=space, query_id="mem", **host),
    )
    assert {name: one["Values"] for name, one in found.items()} == {
        "cpu": [150.0, 150.0],
        "gpu": [75.0, 75.0],
        "gpumem": [100.0, 100.0],
        "mem": [25.0, 25.0],
    }
    assert found["cpu"]["Timestamps"] == [moment(60), moment(0)]
    assert found["cpu"]["StatusCode"] == "Complete"


def test_one_gpu_of_a_batch_job_by_the_agents_name(client):
    found = data(
        client,
        query("nvidia_smi_utilization_gpu", JobId="job-1", index="1"),
        ScanBy="TimestampAscending",
    )["m1"]
    assert found["Values"] == [50.0, 50.0]
    assert found["Timestamps"] == [moment(0), moment(60)]
    assert found["Label"] == "nvidia_smi_utilization_gpu"


def test_expressions_use_metrics_that_are_not_returned(client):
    asked = [
        {**query("nvidia_smi_utilization_gpu", query_id="a", JobId="job-1", index="0"), "ReturnData": False},
        {**query("nvidia_smi_utilization_gpu", query_id="b", JobId="job-1", index="1"), "ReturnData": False},
        {"Id": "worse", "Expression": "100 - both"},
        {"Id": "both", "Expression": "AVG([a, b])", "Label": "both GPUs"},
    ]
    found = data(client, *asked)
    assert found.keys() == {"worse", "both"}
    assert found["both"]["Values"] == [37.5, 37.5]
    assert found["both"]["Label"] == "both GPUs"
    assert found["worse"]["Values"] == [62.5, 62.5]


def test_a_bound_on_datapoints_says_that_there_was_more(client):
    found = data(
        client, query("Steps", namespace="Windfall", stat="Sum", period=1, JobId="job-1"), MaxDatapoints=5
    )
    assert len(found["m1"]["Values"]) == 5
    assert found["m1"]["StatusCode"] == "PartialData"


@pytest.mark.parametrize("most", [0, -5])
def test_a_bound_that_leaves_nothing_is_refused(client, most):
    with pytest.raises(ClientError, match="MaxDatapoints must be at least 1"):
        data(client, query("Steps", namespace="Windfall", JobId="job-1"), MaxDatapoints=most)


@pytest.mark.parametrize(
    "asked",
    [
        query("nvidia_smi_utilization_gpu", JobId="job-1", index="9"),
        query("nvidia_smi_utilization_gpu", JobId="job-1"),
        query("nvidia_smi_utilization_gpu", JobId="nobody", index="0"),
        query("NoSuchMetric", JobId="job-1"),
        query("CPUCores", namespace="Windfall", JobId="job-2"),
    ],
)
def test_what_nobody_measured_is_empty_and_no_error(client, asked):
    assert data(client, asked)["m1"]["Values"] == []


@pytest.mark.parametrize(
    ("queries", "code"),
    [
        ([query("CPUCores", period=7, JobId="job-1")], "InvalidParameterValue"),
        ([query("CPUCores", stat="Median", JobId="job-1")], "InvalidParameterValue"),
        ([{"Id": "e", "Expression": "e"}], "InvalidParameterValue"),
        ([{"Id": "a", "Expression": "b"}, {"Id": "b", "Expression": "a"}], "InvalidParameterValue"),
        ([query("CPUCores", JobId="job-1"), query("CPUCores", JobId="job-1")], "InvalidParameterValue"),
        ([{"Id": "x"}], "InvalidParameterValue"),
        ([], "InvalidParameterValue"),
    ],
)
def test_a_wrong_query_is_refused_in_the_clients_own_form(client, queries, code):
    with pytest.raises(ClientError) as refused:
        data(client, *queries)
    assert refused.value.response["Error"]["Code"] == code
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_time_must_go_forward(client):
    with pytest.raises(ClientError, match="StartTime must be less"):
        client.get_metric_data(
            MetricDataQueries=[query("CPUCores", JobId="job-1")], StartTime=moment(60), EndTime=moment(60)
        )


def test_metrics_are_listed_by_namespace_and_dimension(client):
    listed = client.list_metrics(Namespace="CWAgent", Dimensions=[{"Name": "JobId", "Value": "job-1"}])[
        "Metrics"
    ]
    assert {one["MetricName"] for one in listed} >= {"nvidia_smi_utilization_gpu", "nvidia_smi_memory_used"}
    assert {tuple(sorted((d["Name"], d["Value"]) for d in one["Dimensions"])) for one in listed} == {
        (("JobId", "job-1"), ("index", "0")),
        (("JobId", "job-1"), ("index", "1")),
    }
    hosts = client.list_metrics(Namespace="/aws/sagemaker/TrainingJobs", Dimensions=[{"Name": "Host"}])[
        "Metrics"
    ]
    assert {one["Dimensions"][0]["Value"] for one in hosts} == {"yolo/algo-1"}
    with pytest.raises(ClientError, match="token"):
        client.list_metrics(NextToken="yes")


def test_statistics_of_one_metric(client):
    asked = {
        "Namespace": "CWAgent",
        "MetricName": "nvidia_smi_utilization_gpu",
        "Dimensions": [{"Name": "JobId", "Value": "job-1"}, {"Name": "index", "Value": "0"}],
        "StartTime": moment(0),
        "EndTime": moment(120),
        "Period": 60,
    }
    found = client.get_metric_statistics(**asked, Statistics=["Average", "SampleCount"])
    assert [(one["Average"], one["SampleCount"], one["Unit"]) for one in found["Datapoints"]] == [
        (25.0, 30.0, "Percent"),
        (25.0, 30.0, "Percent"),
    ]
    extended = client.get_metric_statistics(**asked, ExtendedStatistics=["p90"])
    assert extended["Datapoints"][0]["ExtendedStatistics"] == {"p90": 25.0}
    with pytest.raises(ClientError, match="either Statistics or"):
        client.get_metric_statistics(**asked)
    with pytest.raises(ClientError, match="1,440 datapoints"):
        client.get_metric_statistics(**{**asked, "EndTime": moment(100_000), "Period": 1}, Statistics=["Sum"])


def test_the_query_protocol_answers_the_same_in_xml(service):
    form = {
        "Action": "GetMetricStatistics",
        "Version": "2010-08-01",
        "Namespace": "CWAgent",
        "MetricName": "nvidia_smi_utilization_gpu",
        "Dimensions.member.1.Name": "JobId",
        "Dimensions.member.1.Value": "job-1",
        "Dimensions.member.2.Name": "index",
        "Dimensions.member.2.Value": "0",
        "StartTime": moment(0).isoformat(),
        "EndTime": moment(60).isoformat(),
        "Period": "60",
        "Statistics.member.1": "Average",
    }
    headers = {b"content-type": b"application/x-www-form-urlencoded; charset=utf-8"}
    response = ask(service, HttpRequest("POST", "/", "", headers, urlencode(form).encode()))
    assert response.status == 200
    tree = ET.fromstring(response.body)
    assert [node.text for node in tree.iter() if node.tag.endswith("Average")] == ["25.0"]
    wrong = ask(service, HttpRequest("POST", "/", "", headers, urlencode({**form, "Period": "x"}).encode()))
    assert wrong.status == 400
    assert b"<Error>" in wrong.body


def test_the_json_protocol_answers_the_same(service):
    headers = {
        b"content-type": b"application/x-amz-json-1.0",
        b"x-amz-target": b"GraniteServiceVersion20100801.ListMetrics",
    }
    response = ask(
        service, HttpRequest("POST", "/", "", headers, json.dumps({"Namespace": "Windfall"}).encode())
    )
    names = {one["MetricName"] for one in json.loads(response.body)["Metrics"]}
    assert "CPUCores" in names
    missing = {**headers, b"x-amz-target": b"GraniteServiceVersion20100801.PutMetricAlarm"}
    assert ask(service, HttpRequest("POST", "/", "", missing, b"{}")).status == 400


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader_of_cbor(body):
    try:
        read = read_cbor(body)
    except SerializationError:
        return
    assert isinstance(read, dict)


@pytest.mark.parametrize(
    "body",
    [
        cbor2.dumps([]),
        cbor2.dumps({1: 2}),
        cbor2.dumps({"a": cbor2.CBORTag(99, 1)}),
        b"\x81" * 5_000 + b"\x00",
        b"\xff",
        b"\x5b\xff\xff\xff\xff\xff\xff\xff\xff",
    ],
)
def test_cbor_that_is_no_request_is_refused(body):
    with pytest.raises(ApiError):
        read_cbor(body)
