"""Every rule finds what it is for and leaves alone what is well; what is registered is told in the log."""

from __future__ import annotations

import json

import pytest

from windfall.aws_api.batch.lint.checking import RULES, lint, lint_dockerfile
from windfall.aws_api.batch.lint.context import as_served_here
from windfall.aws_api.batch.lint.reading import BadDocument, read_documents
from windfall.aws_api.batch.lint.registration_log import log_findings
from windfall.capacity.environments import ComputeEnvironment, Provisioning
from windfall.jobs.definitions import ContainerSpec, JobDefinition
from windfall.jobs.ids import EnvironmentName
from windfall.jobs.resources import Resources


def definition(*, gpus=1, image="team/train:1.4-cuda12", tags=None, retry=None, timeout=3600, **container):
    requirements = [{"type": "VCPU", "value": "4"}, {"type": "MEMORY", "value": "8192"}]
    if gpus:
        requirements.append({"type": "GPU", "value": str(gpus)})
    return {
        "jobDefinitionName": "train",
        "revision": 3,
        "type": "container",
        "tags": tags or {},
        "retryStrategy": retry or {},
        "timeout": {"attemptDurationSeconds": timeout} if timeout else {},
        "containerProperties": {
            "image": image,
            "resourceRequirements": requirements,
            "linuxParameters": {"sharedMemorySize": 4096},
            **container,
        },
    }


def environment(*, types=("g5", "g6"), market="EC2", ami="ECS_AL2023_NVIDIA", **resources):
    return {
        "computeEnvironmentName": "gpus",
        "type": "MANAGED",
        "computeResources": {
            "type": market,
            "minvCpus": 0,
            "maxvCpus": 64,
            "subnets": [],
            "allocationStrategy": "SPOT_PRICE_CAPACITY_OPTIMIZED"
            if market == "SPOT"
            else "BEST_FIT_PROGRESSIVE",
            "instanceTypes": list(types),
            "ec2Configuration": [{"imageType": ami}],
            **resources,
        },
    }


def codes(definitions=(), environments=()):
    return [finding.rule.code for finding in lint(definitions, environments)]


HOST_LOST = {"onStatusReason": "Host EC2*", "action": "RETRY"}
ANYTHING_ELSE = {"onReason": "*", "action": "EXIT"}


def test_a_sound_pair_has_no_findings():
    sound = definition(retry={"attempts": 5}, tags={"windfall:checkpoint": "true"})
    assert codes([sound], [environment(market="SPOT")]) == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("WL001", definition(linuxParameters={})),
        ("WL001", definition(linuxParameters={"sharedMemorySize": 64})),
        ("WL002", definition(environment=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])),
        (
            "WL003",
            definition(
                linuxParameters={"sharedMemorySize": 4096, "devices": [{"hostPath": "/dev/nvidia0"}]},
            ),
        ),
        ("WL004", {**definition(), "platformCapabilities": ["FARGATE"]}),
        ("WL007", definition(gpus=0)),
        ("WL008", definition(image="pytorch/torch:2.1-cpu")),
        ("WL010", definition(timeout=None)),
        ("WL011", definition(privileged=True)),
        ("WL012", definition(image="team/train")),
        ("WL012", definition(image="registry:5000/team/train:latest")),
        ("WL013", definition(environment=[{"name": "HF_TOKEN", "value": "hf_1"}])),
        ("WL014", definition(vcpus=4, memory=512)),
        ("WL015", definition(command=["sh", "-c", "train until Ref::until"])),
        ("WL015", definition(command=["train", "--until=Ref::until", "Ref::rate"])),
    ],
)
def test_each_rule_about_definitions_finds_its_case_alone(code, found):
    assert codes([found]) == [code]


@pytest.mark.parametrize(
    "sound",
    [
        definition(gpus=0, image="python:3.12", linuxParameters={}),
        definition(image="registry:5000/train@sha256:" + "0" * 64),
        definition(environment=[{"name": "TOKENIZERS_PARALLELISM", "value": "false"}]),
        definition(environment=[{"name": "HF_TOKEN"}]),
        definition(command=["sh", "-c", "train until $0", "Ref::until", "about Ref::"]),
        definition(linuxParameters={"sharedMemorySize": 4096, "devices": [{"hostPath": "/dev/fuse"}]}),
    ],
)
def test_what_only_looks_like_a_fault_is_left_alone(sound):
    assert codes([sound]) == []


@pytest.mark.parametrize(
    ("retry", "found"),
    [
        ({}, True),
        ({"attempts": 1}, True),
        ({"attempts": 3}, False),
        ({"attempts": 3, "evaluateOnExit": [ANYTHING_ELSE]}, True),
        ({"attempts": 3, "evaluateOnExit": [HOST_LOST, ANYTHING_ELSE]}, False),
    ],
)
def test_spot_wants_a_retry_that_a_lost_host_reaches(retry, found):
    tags = {"windfall:budget-usd": "5"}
    parameters = {"windfall-checkpoint": "true"}
    asked = {**definition(retry=retry, tags=tags), "parameters": parameters}
    assert ("WL005" in codes([asked], [environment(market="SPOT")])) is found
    assert "WL005" not in codes([asked], [environment()])


def test_spot_wants_checkpoints():
    plain = definition(retry={"attempts": 3})
    assert codes([plain], [environment(market="SPOT")]) == ["WL006"]


def test_more_gpus_than_any_type_has_is_an_error_only_where_types_are_known():
    assert codes([definition(gpus=4)], [environment(types=["g5.xlarge", "g6.xlarge"])]) == ["WL009"]
    assert codes([definition(gpus=4)], [environment(types=[])]) == []
    assert codes([definition(gpus=4)]) == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("WL101", environment(ami="ECS_AL2023")),
        ("WL102", environment(ami="ECS_AL2_NVIDIA")),
        ("WL103", environment(types=["p2.xlarge"])),
        ("WL104", environment(market="SPOT", allocationStrategy="BEST_FIT_PROGRESSIVE")),
        ("WL105", environment(allocationStrategy="BEST_FIT")),
        ("WL106", environment(market="SPOT", types=["g5.xlarge"])),
        ("WL107", environment(minvCpus=4)),
    ],
)
def test_each_rule_about_environments_finds_its_case_alone(code, found):
    assert codes([], [found]) == [code]


def test_every_rule_has_a_code_of_its_own_and_a_reason():
    assert len({rule.code for rule in RULES}) == len(RULES)
    assert all(rule.why.endswith(".") for rule in RULES)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "must be a JSON object"),
        (b"{}", "neither a job definition"),
        (b'{"jobDefinitions": [3]}', "holds something"),
        (b'{"jobDefinitionName": "a", "type": "container", "containerProperties": 3}', "would refuse it"),
        (b'{"jobDefinitionName": "a"}', "would refuse it"),
    ],
)
def test_what_is_no_document_is_refused_with_a_reason(text, words):
    with pytest.raises(BadDocument, match=words):
        read_documents(text)


def test_the_answer_of_a_describe_command_is_read_as_it_is():
    described = {**definition(), "jobDefinitionArn": "arn:x", "status": "ACTIVE"}
    answer = {"jobDefinitions": [described], "nextToken": None}
    assert read_documents(json.dumps(answer).encode()) == [described]


@pytest.mark.parametrize("market", ["EC2", "SPOT"])
def test_optimal_is_what_this_host_has_where_no_other_engine_serves_the_environment(market):
    asked = definition(
        image="windfall/host", linuxParameters={}, retry={"attempts": 3}, tags={"windfall:checkpoint": "true"}
    )
    made = environment(types=["optimal"], market=market, allocationStrategy="BEST_FIT")
    assert codes([asked], [as_served_here(made, None)]) == []
    assert "WL009" in codes([asked], [as_served_here(made, "simulated")])


def test_a_registration_tells_its_warnings_in_the_log_and_no_hints(caplog):
    document = json.dumps({**definition(timeout=None, privileged=True), "tags": {}})
    spec = ContainerSpec("team/train:1.4-cuda12", Resources(4, 8192, 1))
    spot = ComputeEnvironment(
        EnvironmentName("spot"),
        Provisioning.SPOT,
        0,
        8,
        document=json.dumps(environment(market="SPOT", types=[])),
    )
    with caplog.at_level("WARNING"):
        log_findings(JobDefinition("train", 3, spec, document=document), [spot])
    told = [record.getMessage() for record in caplog.records]
    assert [line.split()[2] for line in told] == ["WL005", "WL006", "WL011"]
    assert all(line.startswith("definition train:3: ") for line in told)


CUDA_BASE = "FROM nvidia/cuda:12.2.0-runtime-ubuntu22.04\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            CUDA_BASE + "RUN pip3 install torch torchvision -i https://host.example/whl/cu121",
            "torch (cu121)",
        ),
        (CUDA_BASE + "# why\nRUN apt-get update && \\\n  pip install \\\n  'torch==2.4'", "torch"),
        (
            "FROM --platform=linux/amd64 nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04 \nRUN python3 -m pip install torch",
            "torch",
        ),
        (CUDA_BASE + 'RUN pip install "jax[cuda12]"', "jax[cuda12]"),
    ],
)
def test_an_image_that_has_cuda_twice_gets_a_hint(text, words):
    (found,) = lint_dockerfile("Dockerfile", text)
    assert (found.rule.code, found.rule.severity, found.subject) == ("WL201", "hint", "file Dockerfile")
    assert found.seen.endswith(f"so have the wheels of {words}")


@pytest.mark.parametrize(
    "text",
    [
        "FROM python:3.12-slim\nRUN pip install torch",
        "FROM nvidia/cuda:12.2.0-base-ubuntu22.04\nRUN pip install torch",
        CUDA_BASE + "RUN pip install torch -i https://host.example/whl/cpu",
        CUDA_BASE + "RUN pip install torchmetrics && echo torch",
        CUDA_BASE + "RUN make\nFROM python:3.12\nRUN pip install torch",
        "FROM\nRUN pip install torch",
    ],
)
def test_an_image_that_has_cuda_once_is_left_alone(text):
    assert lint_dockerfile("Dockerfile", text) == []
