"""Multi-node parallel jobs on the wire: what may be registered and submitted, and what a node looks like."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.unit.aws_api.batch.fakes import ARN, a_job, an_attempt
from windfall.aws_api.batch.nodes import as_shown, main_container, node_range
from windfall.aws_api.protocol.errors import ApiError
from windfall.jobs.aws_texts import EXITED
from windfall.jobs.definitions import ContainerSpec, NodePlan, NodeRange
from windfall.jobs.nodes import NodeGroup, Nodes
from windfall.jobs.resources import Resources
from windfall.jobs.states import FAILED, RUNNING, SUCCEEDED

NEEDS = [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}]
NO_JOB = "aaaaaaaa-0000-4000-8000-000000000009"


def a_container(**more: Any) -> dict[str, Any]:
    return {"image": "busybox", "command": ["echo", "Ref::word"], "resourceRequirements": NEEDS, **more}


def nodes(*ranges: str, count: int = 3, main: int = 0, **container: Any) -> dict[str, Any]:
    entries = [{"targetNodes": each, "container": a_container(**container)} for each in ranges or ("0:",)]
    return {"numNodes": count, "mainNode": main, "nodeRangeProperties": entries}


@pytest.fixture
def client(core_client):
    return core_client


def register(client: Any, **changes: Any) -> dict[str, Any]:
    asked = {"jobDefinitionName": "gang", "type": "multinode", "parameters": {"word": "hello"}, **changes}
    return client.register_job_definition(**asked)


def submit(client: Any, **params: Any) -> str:
    return client.submit_job(jobName="job", jobQueue="queue", jobDefinition="gang", **params)["jobId"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("0:3", (0, 3)),
        (":3", (0, 3)),
        ("2:", (2, None)),
        (":", (0, None)),
        ("2", (2, 2)),
        ("10:10", (10, 10)),
    ],
)
def test_a_range_is_read_in_all_its_spellings(text, meant):
    assert node_range(text) == meant


@pytest.mark.parametrize("text", ["", "a:b", "1-2", "-1:2", "1:2:3", "0 : 1", "99999"])
def test_what_is_no_range_is_refused(text):
    with pytest.raises(ApiError, match="not a node range"):
        node_range(text)


def test_the_main_nodes_container_is_that_of_the_smallest_range_around_it():
    def image(name: str) -> ContainerSpec:
        return ContainerSpec(name, Resources(1, 4))

    ranges = (NodeRange(0, None, image("all")), NodeRange(1, 2, image("some")), NodeRange(3, 3, image("x")))
    assert main_container(NodePlan(4, 1, ranges)).image == "some"


def test_a_definition_comes_back_as_it_was_registered(client):
    register(client, nodeProperties=nodes("0:0", "1:"))
    [found] = client.describe_job_definitions(jobDefinitionName="gang")["jobDefinitions"]
    assert found["type"] == "multinode"
    assert "containerProperties" not in found
    assert [each["targetNodes"] for each in found["nodeProperties"]["nodeRangeProperties"]] == ["0:0", "1:"]
    assert found["nodeProperties"]["nodeRangeProperties"][0]["container"]["volumes"] == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nodeProperties": nodes(count=0)}, "numNodes must be between 1 and 1000"),
        ({"nodeProperties": nodes("0:1")}, "node 2 is in none"),
        ({"nodeProperties": nodes("0:x")}, "not a node range"),
        ({"nodeProperties": nodes(main=3)}, "mainNode must be between 0 and 2"),
        ({}, "go together"),
        (
            {"nodeProperties": nodes(), "type": "container", "containerProperties": a_container()},
            "go together",
        ),
        (
            {"nodeProperties": nodes(), "containerProperties": a_container()},
            "containerProperties are not for",
        ),
        ({"nodeProperties": nodes(), "platformCapabilities": ["FARGATE"]}, "not supported on Fargate"),
        (
            {
                "nodeProperties": {
                    "numNodes": 1,
                    "mainNode": 0,
                    "nodeRangeProperties": [{"targetNodes": "0:"}],
                }
            },
            "no container properties",
        ),
    ],
)
def test_definitions_that_make_no_sense_are_refused(client, changes, said):
    with pytest.raises(ClientError, match=said):
        register(client, **changes)


def test_all_nodes_have_one_instance_type(client):
    asked = nodes("0:0", "1:")
    asked["nodeRangeProperties"][0]["container"]["instanceType"] = "p4d.24xlarge"
    with pytest.raises(ClientError, match="same instanceType"):
        register(client, nodeProperties=asked)


def test_a_job_shows_its_nodes_with_overrides_and_each_node_by_its_id(client):
    register(client, nodeProperties=nodes("0:0", "1:"))
    override = {
        "targetNodes": "1:",
        "containerOverrides": {
            "command": ["Ref::word", "you"],
            "environment": [{"name": "A", "value": "1"}],
            "resourceRequirements": [{"type": "VCPU", "value": "2"}],
        },
    }
    job_id = submit(client, nodeOverrides={"numNodes": 2, "nodePropertyOverrides": [override]})
    [job] = client.describe_jobs(jobs=[job_id])["jobs"]
    assert "nodeDetails" not in job
    assert "arrayProperties" not in job
    shown = job["nodeProperties"]
    assert (shown["numNodes"], shown["mainNode"]) == (2, 0)
    main, other = (each["container"] for each in shown["nodeRangeProperties"])
    assert [each["targetNodes"] for each in shown["nodeRangeProperties"]] == ["0:0", "1:1"]
    assert (main["command"], other["command"]) == (["echo", "hello"], ["hello", "you"])
    assert other["environment"] == [{"name": "A", "value": "1"}]
    assert {"type": "VCPU", "value": "2"} in other["resourceRequirements"]
    found = client.describe_jobs(jobs=[f"{job_id}#1", f"{ARN}:job/{job_id}#0", f"{job_id}#2"])["jobs"]
    assert [(each["jobId"], each["status"]) for each in found] == [
        (f"{job_id}#1", "RUNNABLE"),
        (f"{job_id}#0", "RUNNABLE"),
    ]
    assert [each["nodeDetails"] for each in found] == [
        {"nodeIndex": 1, "isMainNode": False},
        {"nodeIndex": 0, "isMainNode": True},
    ]
    assert found[0]["container"]["command"] == ["hello", "you"]
    assert found[0]["jobArn"] == f"{ARN}:job/{job_id}#1"


def test_nodes_are_listed_by_number_in_pages(client):
    register(client, nodeProperties=nodes(count=5))
    job_id = submit(client)
    first = client.list_jobs(multiNodeJobId=job_id, jobStatus="RUNNABLE", maxResults=3)
    rest = client.list_jobs(
        multiNodeJobId=job_id, jobStatus="RUNNABLE", maxResults=3, nextToken=first["nextToken"]
    )
    listed = [*first["jobSummaryList"], *rest["jobSummaryList"]]
    assert [each["nodeProperties"]["nodeIndex"] for each in listed] == [0, 1, 2, 3, 4]
    assert "nextToken" not in rest
    assert client.list_jobs(multiNodeJobId=job_id)["jobSummaryList"] == []
    assert client.list_jobs(multiNodeJobId=NO_JOB, jobStatus="RUNNABLE")["jobSummaryList"] == []
    [summary] = client.list_jobs(jobQueue="queue", jobStatus="RUNNABLE")["jobSummaryList"]
    assert summary["nodeProperties"] == {"numNodes": 5}
    with pytest.raises(ClientError, match="Exactly one of"):
        client.list_jobs(multiNodeJobId=job_id, jobQueue="queue")


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"arrayProperties": {"size": 2}}, "cannot be an array"),
        ({"containerOverrides": {"command": ["x"]}}, "nodeOverrides"),
        (
            {"nodeOverrides": {"nodePropertyOverrides": [{"targetNodes": "0:0"}]}},
            "NodeOverride targets should match job definition. Non matching targets - 0:0",
        ),
        ({"nodeOverrides": {"numNodes": 1001}}, "numNodes must be between 1 and 1000"),
        ({"dependsOn": [{"jobId": f"{NO_JOB}#1"}]}, "is not the id of a job"),
    ],
)
def test_submissions_that_make_no_sense_are_refused(client, params, said):
    register(client, nodeProperties=nodes())
    with pytest.raises(ClientError, match=said):
        submit(client, **params)


def test_one_node_cannot_be_terminated(client):
    register(client, nodeProperties=nodes())
    job_id = submit(client)
    for stop in (client.terminate_job, client.cancel_job):
        with pytest.raises(ClientError, match=f"name job {job_id}"):
            stop(jobId=f"{job_id}#1", reason="no")
    client.terminate_job(jobId=job_id, reason="no")
    assert [job["status"] for job in client.describe_jobs(jobs=[job_id])["jobs"]] == ["FAILED"]


@pytest.mark.parametrize(("code", "state"), [(0, SUCCEEDED), (3, FAILED)])
def test_a_node_that_has_ended_is_not_shown_as_running(code, state):
    group = NodeGroup(0, 1, ContainerSpec("image", Resources(1, 4)))
    submission = {"nodes": Nodes(2, 0, (group,))}
    ended = an_attempt(started_at=1, stopped_at=2, exit_code=code, status_reason=EXITED)
    node = a_job(state=RUNNING, submission=submission, parent="p", index=1, attempts=[ended])
    shown = as_shown(node)
    assert (shown.state, shown.stopped_at, shown.status_reason) == (state, 2, EXITED)
    assert as_shown(a_job(state=RUNNING, attempts=[ended])).state is RUNNING
