"""Limits that AWS has and its models do not say: each is refused at its edge, and what is just inside is done."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any

import pytest

from tests.wire.samples import BATCH, CONTAINER, SCHEDULE, SHARE, a_furnished_world, samples

LIMIT = {
    "reason": "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY",
    "state": "RUNNABLE",
    "maxTimeSeconds": 600,
    "action": "CANCEL",
}
#: (operation, where in the request, values that are refused, values that are done)
BATCH_BOUNDS: list[tuple[str, str, list[Any], list[Any]]] = [
    ("SubmitJob", "arrayProperties", [{"size": 1}, {"size": 10_001}], [{"size": 2}, {"size": 10_000}]),
    ("SubmitJob", "timeout", [{"attemptDurationSeconds": 59}], [{"attemptDurationSeconds": 60}]),
    ("SubmitJob", "retryStrategy", [{"attempts": 0}, {"attempts": 11}], [{"attempts": 1}, {"attempts": 10}]),
    ("SubmitJob", "retryStrategy", [{"evaluateOnExit": [{"action": "EXIT", "onExitCode": "1"}]}], []),
    (
        "SubmitJob",
        "retryStrategy",
        [{"attempts": 2, "evaluateOnExit": [{"action": "EXIT", "onExitCode": "1"}] * 6}],
        [{"attempts": 2, "evaluateOnExit": [{"action": "EXIT", "onExitCode": "1"}] * 5}],
    ),
    ("SubmitJob", "dependsOn", [[{"jobId": "00000000-0000-4000-8000-000000000000"}] * 21], []),
    ("SubmitJob", "jobName", ["-a", "a b", "a" * 129], ["a", "a" * 128]),
    ("SubmitJob", "shareIdentifier", ["team"], []),  # the queue has no policy
    ("SubmitJob", "schedulingPriorityOverride", [5], []),
    ("SubmitJob", "jobQueue", ["nobody", "spare", "service-queue"], ["queue"]),
    ("SubmitJob", "jobDefinition", ["nobody", "echo:9"], ["echo:1", "echo"]),
    ("SubmitJob", "nodeOverrides", [{"numNodes": 2}], []),  # the definition has one node
    ("SubmitServiceJob", "jobQueue", ["queue", "nobody"], ["service-queue"]),
    ("SubmitServiceJob", "schedulingPriority", [-1, 10_000], [0, 9_999]),
    ("SubmitServiceJob", "retryStrategy", [{"attempts": 0}, {"attempts": 11}], [{"attempts": 10}]),
    ("SubmitServiceJob", "serviceRequestPayload", ["x" * (10 * 1024 + 1)], ["not even JSON"]),
    ("SubmitServiceJob", "shareIdentifier", ["team"], []),
    ("SubmitServiceJob", "quotaShareName", ["team"], []),
    ("UpdateServiceJob", "schedulingPriority", [-1, 10_000], [0, 9_999]),
    ("CreateJobQueue", "jobQueueName", ["a b", "a" * 129], ["a" * 128]),
    ("CreateJobQueue", "computeEnvironmentOrder", [[], [{"order": 1, "computeEnvironment": "nobody"}]], []),
    ("CreateJobQueue", "schedulingPolicyArn", [f"{BATCH}:scheduling-policy/nobody", "fair:fair"], []),
    ("CreateJobQueue", "schedulingPolicyArn", [], [f"{BATCH}:scheduling-policy/fair"]),
    (
        "CreateJobQueue",
        "jobStateTimeLimitActions",
        [
            [{"reason": "WHATEVER", "state": "RUNNABLE", "maxTimeSeconds": 600, "action": "CANCEL"}],
            [{**LIMIT, "maxTimeSeconds": 599}],
            [{**LIMIT, "maxTimeSeconds": 86_401}],
            [{**LIMIT, "action": "TERMINATE"}],
        ],
        [[LIMIT]],
    ),
    (
        "UpdateJobQueue",
        "schedulingPolicyArn",
        [f"{BATCH}:scheduling-policy/fair"],
        [],
    ),  # never on a FIFO queue
    ("UpdateComputeEnvironment", "computeResources", [{"minvCpus": 9, "maxvCpus": 8}], [{"minvCpus": 1}]),
    ("DeleteComputeEnvironment", "computeEnvironment", ["env", "nobody"], ["spare"]),
    ("DeleteJobQueue", "jobQueue", ["queue", "nobody"], ["spare"]),
    (
        "DeleteSchedulingPolicy",
        "arn",
        [f"{BATCH}:scheduling-policy/fair"],
        [f"{BATCH}:scheduling-policy/spare"],
    ),
    ("DeleteServiceEnvironment", "serviceEnvironment", ["service", "nobody"], ["spare"]),
    ("CreateSchedulingPolicy", "name", ["fair", "a b", "a" * 129], ["a" * 128]),
    ("CreateSchedulingPolicy", "fairsharePolicy", [{"shareDecaySeconds": -1}], [{"shareDecaySeconds": 0}]),
    (
        "CreateSchedulingPolicy",
        "fairsharePolicy",
        [{"shareDecaySeconds": 604_801}],
        [{"shareDecaySeconds": 604_800}],
    ),
    (
        "CreateSchedulingPolicy",
        "fairsharePolicy",
        [{"computeReservation": 100}],
        [{"computeReservation": 99}],
    ),
    ("CreateSchedulingPolicy", "fairsharePolicy", [{"computeReservation": -1}], [{"computeReservation": 0}]),
    *(
        (
            "CreateSchedulingPolicy",
            "fairsharePolicy",
            [{"shareDistribution": [{"shareIdentifier": "a", "weightFactor": weight}]}],
            [],
        )
        for weight in (0, 0.00001, 1000, -1)
    ),
    (
        "CreateSchedulingPolicy",
        "fairsharePolicy",
        [
            {"shareDistribution": [{"shareIdentifier": "a"}, {"shareIdentifier": "a"}]},
            {"shareDistribution": [{"shareIdentifier": "a*"}, {"shareIdentifier": "ab*"}]},
            {"shareDistribution": [{"shareIdentifier": "a b"}]},
            {"shareDistribution": [{"shareIdentifier": "a*b"}]},
            {"shareDistribution": [{"shareIdentifier": "a" * 256}]},
        ],
        [{"shareDistribution": [{"shareIdentifier": "a*"}, {"shareIdentifier": "b", "weightFactor": 0.125}]}],
    ),
    (
        "CreateSchedulingPolicy",
        "quotaSharePolicy",
        [{"idleResourceAssignmentStrategy": "FIFO"}],
        [],
    ),  # not both
    ("CreateQuotaShare", "jobQueue", ["queue", "nobody"], ["quota"]),
    ("CreateQuotaShare", "capacityLimits", [[], [{"maxCapacity": 1, "capacityUnit": "ELEPHANTS"}]], []),
    (
        "CreateQuotaShare",
        "capacityLimits",
        [SHARE["capacityLimits"] * 2, [{"maxCapacity": -1, "capacityUnit": "GPU"}]],
        [[{"maxCapacity": 1, "capacityUnit": "GPU"}]],
    ),
    (
        "CreateQuotaShare",
        "resourceSharingConfiguration",
        [{"strategy": "LEND_AND_BORROW", "borrowLimit": -2}],
        [{"strategy": "LEND_AND_BORROW", "borrowLimit": 50}, {"strategy": "LEND"}],
    ),
    ("CreateConsumableResource", "totalQuantity", [-1], [0, 1_000_000]),
    ("CreateConsumableResource", "resourceType", ["EDIBLE"], ["REPLENISHABLE", "NON_REPLENISHABLE"]),
    ("CreateConsumableResource", "consumableResourceName", ["licence", "a b"], ["b"]),
    ("UpdateConsumableResource", "operation", ["DOUBLE"], ["SET", "REMOVE"]),
    ("UpdateConsumableResource", "quantity", [-1], [1]),
    ("UpdateConsumableResource", "consumableResource", ["nobody"], ["licence"]),
    (
        "CreateServiceEnvironment",
        "capacityLimits",
        [[], [{"maxCapacity": -1, "capacityUnit": "NUM_INSTANCES"}]],
        [],
    ),
    ("RegisterJobDefinition", "schedulingPriority", [-1, 10_000], [0, 9_999]),
    (
        "RegisterJobDefinition",
        "consumableResourceProperties",
        [
            {"consumableResourceList": [{"consumableResource": f"r{n}", "quantity": 1} for n in range(6)]},
            {"consumableResourceList": [{"consumableResource": "licence", "quantity": -1}]},
        ],
        [],
    ),
    ("CancelJobs", "jobs", [["x"] * 51], []),
    ("DescribeJobs", "jobs", [["x"] * 101], [["x"] * 100]),
    ("CancelJob", "reason", ["r" * 1025], ["r" * 1024]),
]
NODES = {
    "numNodes": 2,
    "mainNode": 0,
    "nodeRangeProperties": [{"targetNodes": "0:1", "container": CONTAINER}],
}
MULTI_NODE: list[tuple[Any, bool]] = [
    (NODES, True),
    ({**NODES, "numNodes": 0}, False),
    ({**NODES, "numNodes": 1001}, False),
    ({**NODES, "mainNode": 2}, False),
    ({**NODES, "mainNode": -1}, False),
    ({**NODES, "nodeRangeProperties": []}, False),
    ({**NODES, "nodeRangeProperties": [{"targetNodes": "0:0", "container": CONTAINER}]}, False),
    ({**NODES, "nodeRangeProperties": [{"targetNodes": "0:7", "container": CONTAINER}]}, False),
    ({**NODES, "nodeRangeProperties": [{"targetNodes": "x", "container": CONTAINER}]}, False),
    ({**NODES, "nodeRangeProperties": [{"targetNodes": "0:"}]}, False),
    ({**NODES, "nodeRangeProperties": [{"targetNodes": "0:", "container": CONTAINER}] * 6}, False),
    ({**NODES, "nodeRangeProperties": [{"targetNodes": "0:", "container": CONTAINER}]}, True),
]
EXPRESSIONS = {
    "rate(5 minutes)": True,
    "rate(1 day)": True,
    "rate(0 days)": False,
    "rate(five days)": False,
    "rate(1 fortnight)": False,
    "at(2099-01-01T00:00:00)": True,
    "at(2099-13-01T00:00:00)": False,
    "cron(0 2 ? * 2-6 *)": True,
    "cron(0 2 * * ? *)": True,
    "cron(0 2 * * * *)": False,  # one of the days must be a question mark
    "cron(60 2 ? * MON *)": False,
    "cron(0 2 ? * MON)": False,
    "0 2 ? * MON *": False,
}


async def _try(directory: Any, service: str, operation: str, changes: dict[str, Any], *, right: bool) -> None:
    async with a_furnished_world(directory) as (world, ids):
        params = deepcopy(samples(ids)[service, operation].params)
        before = world.store.commits
        answer = await world.ask(service, operation, {**params, **changes})
        if right:
            assert answer.status == 200, f"{operation} {changes}: {answer}"
            return
        assert 400 <= answer.status < 500, f"{operation} {changes}: {answer}"
        assert answer.code not in ("", "InternalFailure"), answer
        assert len(str(answer.body)) > 20, f"it does not say what to do: {answer}"
        assert world.store.commits == before, "a request that was refused has changed something"


@pytest.mark.parametrize(
    "number", range(len(BATCH_BOUNDS)), ids=lambda n: f"{n}-{'-'.join(BATCH_BOUNDS[n][:2])}"
)
def test_a_limit_of_batch_holds_at_its_edge(number, tmp_path):
    operation, member, refused, done = BATCH_BOUNDS[number]
    for value, right in [*((value, False) for value in refused), *((value, True) for value in done)]:
        asyncio.run(_try(tmp_path, "batch", operation, {member: value}, right=right))


@pytest.mark.parametrize("number", range(len(MULTI_NODE)))
def test_the_nodes_of_a_definition_make_sense(number, tmp_path):
    nodes, right = MULTI_NODE[number]
    changes = {"type": "multinode", "nodeProperties": nodes}

    async def register() -> None:
        async with a_furnished_world(tmp_path) as (world, _):
            before = world.store.commits
            asked = {"jobDefinitionName": "gang", **changes}
            answer = await world.ask("batch", "RegisterJobDefinition", asked)
            assert (answer.status == 200) is right, answer
            assert right or (answer.code == "ClientException" and world.store.commits == before), answer

    asyncio.run(register())


@pytest.mark.parametrize(("expression", "right"), EXPRESSIONS.items())
def test_an_expression_is_taken_or_refused(expression, right, tmp_path):
    changes = {**SCHEDULE, "ScheduleExpression": expression}
    asyncio.run(_try(tmp_path, "scheduler", "CreateSchedule", changes, right=right))
