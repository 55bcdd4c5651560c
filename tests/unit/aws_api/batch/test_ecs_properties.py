"""ecsProperties: the same job as with containerProperties, and answers in the form that was sent."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.unit.aws_api.batch.fakes import a_job, an_attempt
from windfall.aws_api.batch.ecs_properties import NOT_RUN, first_essential
from windfall.aws_api.batch.lint.checking import lint
from windfall.jobs.ids import DefinitionKey
from windfall.jobs.states import SUCCEEDED

NEEDS = [{"type": "VCPU", "value": "2"}, {"type": "MEMORY", "value": "64"}]
MAIN = {
    "name": "train",
    "image": "busybox",
    "command": ["echo", "Ref::word"],
    "environment": [{"name": "A", "value": "1"}],
    "resourceRequirements": NEEDS,
    "linuxParameters": {"sharedMemorySize": 128},
    "user": "nobody",
}
SIDECAR = {"name": "router", "image": "fluent-bit", "essential": False, "resourceRequirements": NEEDS}


def task(*containers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"taskProperties": [{"containers": list(containers or (MAIN,)), **more}]}


def override(**members: Any) -> dict[str, Any]:
    return {"taskProperties": [{"containers": [members]}]}


@pytest.fixture
def client(core_client):
    return core_client


def register(client: Any, properties: dict[str, Any], **more: Any) -> None:
    client.register_job_definition(
        jobDefinitionName="d",
        type="container",
        ecsProperties=properties,
        parameters={"word": "hello"},
        **more,
    )


def submit(client: Any, **params: Any) -> dict[str, Any]:
    job_id = client.submit_job(jobName="j", jobQueue="queue", jobDefinition="d", **params)["jobId"]
    [job] = client.describe_jobs(jobs=[job_id])["jobs"]
    return job


def test_the_core_gets_what_container_properties_would_have_said(world):
    beside = {"volumes": [{"name": "data", "host": {"sourcePath": "/data"}}], "taskRoleArn": "role"}
    point = {"sourceVolume": "data", "containerPath": "/in"}
    written = {**MAIN, "mountPoints": [point]}
    world.call(
        "RegisterJobDefinition",
        jobDefinitionName="a",
        type="container",
        ecsProperties=task(written, **beside),
    )
    by_task = world.last.definition.container
    plain = {name: value for name, value in written.items() if name != "name"}
    world.call(
        "RegisterJobDefinition",
        jobDefinitionName="b",
        type="container",
        containerProperties={**plain, "volumes": beside["volumes"], "jobRoleArn": "role"},
    )
    by_container = world.last.definition.container
    assert (by_task.name, by_container.name) == ("train", "default")
    assert by_task.options == by_container.options
    assert by_task.options.mounts[0].host_path == "/data"
    for member in ("image", "command", "environment", "resources", "shared_memory_mib", "log_group"):
        assert getattr(by_task, member) == getattr(by_container, member), member


def test_a_definition_comes_back_as_a_task(client):
    register(client, task(MAIN, SIDECAR, taskRoleArn="role", ipcMode="task"))
    [found] = client.describe_job_definitions(jobDefinitionName="d")["jobDefinitions"]
    assert "containerProperties" not in found
    [shown] = found["ecsProperties"]["taskProperties"]
    assert (shown["taskRoleArn"], shown["ipcMode"], shown["volumes"]) == ("role", "task", [])
    main, sidecar = shown["containers"]
    assert {**main, **MAIN} == main
    assert (main["ulimits"], main["mountPoints"], main["secrets"], main["dependsOn"]) == ([], [], [], [])
    assert (sidecar["name"], sidecar["essential"], sidecar["command"]) == ("router", False, [])


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"taskProperties": []}, "one element in taskProperties, got 0"),
        ({"taskProperties": task()["taskProperties"] * 2}, "one element in taskProperties, got 2"),
        ({"taskProperties": [{"containers": []}]}, "1 to 10 containers, got 0"),
        (task({**MAIN, "name": "a b"}), "letters, digits, hyphens and underscores"),
        (task(MAIN, {**SIDECAR, "name": "train"}), "train is used more than once"),
        (task(SIDECAR), "At least one container of a task must be essential"),
        (task(MAIN, {**MAIN, "name": "b"}), "2 are essential (train, b): declare those"),
        (
            task({**MAIN, "dependsOn": [{"containerName": "router", "condition": "START"}]}, SIDECAR),
            "train depends on router",
        ),
        (
            task({**MAIN, "dependsOn": [{"containerName": "x", "condition": "START"}]}),
            "'x', which is not another container",
        ),
        (task(networkMode="host"), "networkMode not applicable"),
        (task(platformVersion="LATEST"), "platformVersion not applicable for EC2."),
        (task({**MAIN, "resourceRequirements": []}), "vCPU is not provided."),
        (task({**MAIN, "image": "a b"}), "no white space"),
        (
            task(volumes=[{"name": "v", "efsVolumeConfiguration": {"fileSystemId": "fs-1"}}]),
            "Windfall does not support efsVolumeConfiguration",
        ),
    ],
)
def test_a_bad_task_is_refused(client, properties, said):
    with pytest.raises(ClientError) as refusal:
        register(client, properties)
    assert said in str(refusal.value)


def for_fargate(container: dict[str, Any], vcpus: str, memory_mib: str) -> dict[str, Any]:
    wanted = [{"type": "VCPU", "value": vcpus}, {"type": "MEMORY", "value": memory_mib}]
    return {**container, "linuxParameters": {}, "resourceRequirements": wanted}


def test_the_size_of_a_task_for_fargate_is_that_of_its_containers_together(client):
    beside = for_fargate(SIDECAR, "0.25", "128")
    register(client, task(for_fargate(MAIN, "0.75", "1920"), beside), platformCapabilities=["FARGATE"])
    wanted = [{"type": "MEMORY", "value": "2944"}]
    changed = override(name="train", resourceRequirements=wanted)
    assert submit(client, ecsPropertiesOverride=changed)["status"] == "RUNNABLE"
    wanted[0]["value"] = "2048"
    with pytest.raises(ClientError, match=r"1\.00 vCPU, 2176 MiB\) not valid"):
        submit(client, ecsPropertiesOverride=changed)
    with pytest.raises(ClientError, match=r"1\.25 vCPU, 2048 MiB\) not valid"):
        register(client, task(for_fargate(MAIN, "1", "1920"), beside), platformCapabilities=["FARGATE"])


def test_a_task_for_fargate_has_its_platform(client):
    fargate = for_fargate(MAIN, "0.25", "512")
    register(client, task(fargate, platformVersion="LATEST"), platformCapabilities=["FARGATE"])
    [found] = client.describe_job_definitions(jobDefinitionName="d")["jobDefinitions"]
    assert found["ecsProperties"]["taskProperties"][0]["platformVersion"] == "LATEST"


def test_overrides_are_for_the_container_that_they_name(client):
    register(client, task(MAIN, SIDECAR))
    change = override(
        name="train",
        command=["echo", "other"],
        environment=[{"name": "B", "value": "2"}],
        resourceRequirements=[{"type": "VCPU", "value": "4"}],
    )
    change["taskProperties"][0]["containers"].append({"name": "router", "command": ["ignored"]})
    job = submit(client, ecsPropertiesOverride=change)
    assert job["container"] == {}
    main, sidecar = job["ecsProperties"]["taskProperties"][0]["containers"]
    assert main["command"] == ["echo", "other"]
    assert main["environment"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    assert {one["type"]: one["value"] for one in main["resourceRequirements"]} == {
        "VCPU": "4",
        "MEMORY": "64",
    }
    assert main["user"] == "nobody"
    assert sidecar["command"] == []
    assert job["tags"] == {"windfall:not-applied": "container router"}


def test_without_overrides_parameters_are_filled_in(client):
    register(client, task(taskRoleArn="role"))
    job = submit(client, parameters={"word": "there"}, ecsPropertiesOverride={"taskProperties": []})
    [shown] = job["ecsProperties"]["taskProperties"]
    assert shown["containers"][0]["command"] == ["echo", "there"]
    # Of one container clients that know no tasks can read all that they know.
    assert (job["container"]["command"], job["container"]["user"]) == (["echo", "there"], "nobody")
    assert job["container"]["jobRoleArn"] == "role"
    assert "exitCode" not in shown["containers"][0]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"ecsPropertiesOverride": override(name="x", command=["a"])}, "'x'; the job definition has train"),
        (
            {"ecsPropertiesOverride": {"taskProperties": [{}, {}]}},
            "must have one element in taskProperties, got 2",
        ),
        (
            {"ecsPropertiesOverride": override(name="train"), "containerOverrides": {"command": ["a"]}},
            "either containerOverrides or ecsPropertiesOverride",
        ),
        (
            {"ecsPropertiesOverride": override(environment=[{"name": "AWS_BATCH_X", "value": "1"}])},
            "reserved",
        ),
        ({"ecsPropertiesOverride": override(name="train"), "jobDefinition": "nobody"}, "does not exist"),
        ({"ecsPropertiesOverride": override(name="train"), "jobDefinition": "d:7"}, "does not exist"),
        (
            {"ecsPropertiesOverride": override(name="train"), "jobDefinition": "plain"},
            "use containerOverrides",
        ),
    ],
)
def test_overrides_that_fit_nothing_are_refused(client, asked, said):
    register(client, task())
    client.register_job_definition(
        jobDefinitionName="plain",
        type="container",
        containerProperties={"image": "x", "vcpus": 1, "memory": 64},
    )
    with pytest.raises(ClientError) as refusal:
        client.submit_job(**{"jobName": "j", "jobQueue": "queue", "jobDefinition": "d", **asked})
    assert said in str(refusal.value)


def test_one_container_is_meant_without_its_name(client):
    unnamed = {name: value for name, value in MAIN.items() if name != "name"}
    register(client, task(unnamed))
    job = submit(client, ecsPropertiesOverride=override(command=["true"]))
    assert job["ecsProperties"]["taskProperties"][0]["containers"][0]["command"] == ["true"]


def test_how_it_ended_is_told_by_container(world):
    world.call(
        "RegisterJobDefinition",
        jobDefinitionName="train",
        type="container",
        ecsProperties=task(MAIN, SIDECAR),
        parameters={"word": "x"},
    )
    attempt = an_attempt(started_at=1, stopped_at=2, exit_code=3, reason="oops")
    job = a_job(state=SUCCEEDED, attempts=[attempt], submission={"definition": DefinitionKey("train:1")})
    world.store.all_jobs[job.id] = job
    [shown] = world.client().describe_jobs(jobs=[job.id])["jobs"]
    [ended] = shown["attempts"]
    assert ended["container"] == {}
    [of_attempt] = ended["taskProperties"]
    assert of_attempt["taskArn"].endswith(attempt.task_id)
    assert of_attempt["containerInstanceArn"].endswith(attempt.instance)
    main, sidecar = of_attempt["containers"]
    assert (main["name"], main["exitCode"], main["reason"]) == ("train", 3, "oops")
    assert main["logStreamName"] == attempt.log_stream
    assert sidecar == {"name": "router", "reason": NOT_RUN}
    [of_job] = shown["ecsProperties"]["taskProperties"]
    assert of_job["taskArn"] == of_attempt["taskArn"]
    assert of_job["containers"][0]["exitCode"] == 3
    assert of_job["containers"][1]["reason"] == NOT_RUN


def test_nodes_may_be_tasks(client):
    client.register_job_definition(
        jobDefinitionName="d",
        type="multinode",
        parameters={"word": "x"},
        nodeProperties={
            "numNodes": 2,
            "mainNode": 0,
            "nodeRangeProperties": [
                {"targetNodes": "0:", "ecsProperties": task(MAIN, SIDECAR), "instanceTypes": ["p5.48xlarge"]}
            ],
        },
    )
    [found] = client.describe_job_definitions(jobDefinitionName="d")["jobDefinitions"]
    [entry] = found["nodeProperties"]["nodeRangeProperties"]
    assert entry["instanceTypes"] == ["p5.48xlarge"]
    assert "container" not in entry
    assert entry["ecsProperties"]["taskProperties"][0]["containers"][0]["ulimits"] == []
    change = {
        "targetNodes": "0:3",
        "ecsPropertiesOverride": override(name="train", command=["go"]),
        "instanceTypes": ["p4d.24xlarge"],
    }
    job = submit(client, nodeOverrides={"numNodes": 4, "nodePropertyOverrides": [change]})
    [shown] = job["nodeProperties"]["nodeRangeProperties"]
    assert (shown["targetNodes"], shown["instanceTypes"]) == ("0:3", ["p4d.24xlarge"])
    assert shown["ecsProperties"]["taskProperties"][0]["containers"][0]["command"] == ["go"]
    [node] = client.describe_jobs(jobs=[f"{job['jobId']}#2"])["jobs"]
    assert node["ecsProperties"]["taskProperties"][0]["containers"][0]["command"] == ["go"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"ecsProperties": task(), "container": {"image": "x"}}, "both container and ecsProperties"),
        ({"ecsProperties": task(), "instanceTypes": ["a", "b"]}, "must have one element, got 2"),
        (
            {"container": {"image": "x", "instanceType": "a"}, "instanceTypes": ["b"]},
            "two instance types, b and a",
        ),
        ({"eksProperties": {"podProperties": {}}}, "does not support eksProperties of node ranges"),
    ],
)
def test_a_bad_range_of_tasks_is_refused(client, entry, said):
    entry = {"targetNodes": "0:", **entry}
    if "container" in entry:
        entry["container"] = {**entry["container"], "resourceRequirements": NEEDS}
    nodes = {"numNodes": 1, "mainNode": 0, "nodeRangeProperties": [entry]}
    with pytest.raises(ClientError) as refusal:
        client.register_job_definition(jobDefinitionName="d", type="multinode", nodeProperties=nodes)
    assert said in str(refusal.value)


def test_rules_look_into_tasks_too():
    gpus = [*NEEDS, {"type": "GPU", "value": "1"}]
    several = task(SIDECAR, {**MAIN, "resourceRequirements": gpus}, {**MAIN, "name": "other"})
    codes = [one.rule.code for one in lint([{"jobDefinitionName": "d", "ecsProperties": several}], [])]
    assert "WL001" in codes
    assert first_essential(None) == {}
    assert first_essential(task(SIDECAR)) == {}
