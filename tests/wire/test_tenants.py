"""What one tenant has is not there for another: by every operation, name, id and ARN, with a key of every role.

The same requests go to two worlds that differ only in one tenant's resources. Other tenants get the same answers in
both, so no answer shows whether something exists; and the resources are unchanged.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.wire.samples import CONTAINER, a_furnished_world
from tests.wire.tenants import SHARED, asked_own, furnish_tenant, open_bucket, own_operations, requests
from tests.wire.world import ADMIN, World, all_services
from windfall.aws_api.protocol.service import Caller, Role

NOBODY = dict.fromkeys(("job", "array", "shared", "service_job", "training"), "x")
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\b1[78][0-9]{8}(?:[0-9]{3})?(?:\.[0-9]+)?\b")
#: How busy what all share is may be seen: how many jobs wait, of all tenants, and what each share uses.
LOAD = re.compile(
    r'"(?:waiting|running|inUseQuantity|activeShareCount|quantity|load)": (?:[0-9.]+|\[[^]]*\])'
)
OWNERS = ["lab", "default"]
#: Enough for all: which jobs wait for which is not secret among tenants that share capacity.
ROOM = {
    "serviceEnvironment": "service",
    "capacityLimits": [{"maxCapacity": 100, "capacityUnit": "NUM_INSTANCES"}],
}


async def asked(world: World, own: Any, request: tuple[str, str, dict[str, Any]], caller: Caller) -> str:
    service, operation, params = request
    if service == "windfall":
        answer = await asked_own(own, operation, params, caller)
    else:
        answer = await world.ask(service, operation, params, caller)
    return f"{answer.status} {answer.code} {json.dumps(answer.body, sort_keys=True)}"


def scrubbed(text: str, ids: Mapping[str, str]) -> str:
    """An answer without what differs from one moment, or one id, to another."""
    text = UUID.sub(lambda match: match[0] if match[0] in ids.values() else "<id>", text)
    text = LOAD.sub('"<load>": 0', TIME.sub("0", text))
    status, code, body = text.split(" ", 2)
    return f"{status} {code} {json.dumps(_sorted(json.loads(body)))}"


async def look(world: World, own: Any, ids: Mapping[str, str], owner: str) -> list[str]:
    """All that a tenant can read of its things."""
    key = Caller("AKIAOWNER", Role.READ, owner)
    reading = [one for one in requests(dict(ids), owner) if _reads(one[1])]
    return [scrubbed(await asked(world, own, one, key), ids) for one in reading]


def _around(text: str, other: str) -> str:
    """The part of a text in which it is not the other."""
    at = next((at for at, pair in enumerate(zip(text, other, strict=False)) if len(set(pair)) > 1), 0)
    return text[max(0, at - 100) : at + 200]


def _sorted(value: Any) -> Any:
    """Without the order of lists, in which ids that were drawn at random decide between equals."""
    if isinstance(value, dict):
        return {name: _sorted(member) for name, member in value.items()}
    if isinstance(value, list):
        return sorted((_sorted(member) for member in value), key=json.dumps)
    return value


def _reads(operation: str) -> bool:
    return operation.startswith(("Describe", "List", "Get", "Filter", "Find")) or operation in (
        "Attempts",
        "Schedules",
        "ScheduleHistory",
    )


def test_the_requests_speak_of_every_operation_that_is_served(tmp_path):
    services = {**all_services(tmp_path), "windfall": own_operations(tmp_path)}
    served = {(name, operation) for name, service in services.items() for operation in service.operations}
    tried = {(service, operation) for service, operation, _ in requests(NOBODY, "lab")}
    assert tried <= served
    assert served - tried == served & SHARED, "say of each operation whether tenants share what it is about"


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("role", [Role.READ, Role.SUBMIT])
@pytest.mark.parametrize("other", ["rival", "default", "lab"])
def test_what_a_tenant_has_is_not_there_for_another(owner, other, role, tmp_path):
    if owner == other:
        pytest.skip("it is its own")

    async def test() -> None:
        own, key = own_operations(tmp_path), Caller("AKIAOTHER", role, other)
        definition = {"jobDefinitionName": "own", "type": "container", "containerProperties": CONTAINER}
        async with a_furnished_world(tmp_path) as (world, _):
            await world.done("batch", "UpdateServiceEnvironment", ROOM)
            ids = await furnish_tenant(world, owner)
            await world.ask("batch", "RegisterJobDefinition", definition, key)
            before = await look(world, own, ids, owner)
            tries = list(requests(ids, owner))
            there = [scrubbed(await asked(world, own, one, key), ids) for one in tries]
            after = await look(world, own, ids, owner)
        async with a_furnished_world(tmp_path) as (world, _):
            await world.done("batch", "UpdateServiceEnvironment", ROOM)
            await open_bucket(world)
            await world.ask("batch", "RegisterJobDefinition", definition, key)
            missing = [scrubbed(await asked(world, own, one, key), ids) for one in tries]
        told = [
            f"{one[0]}:{one[1]} {one[2]}\n  there: {_around(seen, nothing)}\n  not:   {_around(nothing, seen)}"
            for one, seen, nothing in zip(tries, there, missing, strict=True)
            if seen != nothing
        ]
        assert not told, f"{len(told)} of {len(tries)} answers tell:\n" + "\n".join(told[:10])
        assert before == after, [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]][:3]
        assert not any(text.startswith("500") for text in there)

    asyncio.run(test())


@pytest.mark.parametrize("tenant", OWNERS)
def test_an_administrator_sees_what_every_tenant_has(tenant, tmp_path):
    async def test() -> None:
        own = own_operations(tmp_path)
        async with a_furnished_world(tmp_path) as (world, _):
            ids = await furnish_tenant(world, tenant)
            prefix = "" if tenant == "default" else f"{tenant}/"
            for request, wanted in (
                (("batch", "DescribeJobs", {"jobs": [ids["job"]]}), f"job-definition/{prefix}private:1"),
                (("batch", "ListJobs", {"jobQueue": "queue", "jobStatus": "RUNNABLE"}), ids["job"]),
                (("batch", "DescribeServiceJob", {"jobId": ids["service_job"]}), ids["service_job"]),
                (("batch", "DescribeJobDefinitions", {"jobDefinitionName": f"{prefix}private"}), "busybox"),
                (("batch", "GetJobQueueSnapshot", {"jobQueue": "queue"}), ids["job"]),
                (("scheduler", "GetSchedule", {"Name": "weekly", "GroupName": f"{prefix}team"}), "weekly"),
                (("scheduler", "ListScheduleGroups", {}), f"schedule-group/{prefix}team"),
                (("sagemaker", "DescribeTrainingJob", {"TrainingJobName": f"{prefix}run-1"}), "busybox"),
                (("sagemaker", "ListTrainingJobs", {}), f"training-job/{prefix}run-1"),
                (("windfall", "Why", {"jobId": ids["training"]}), "run-1"),
                (("windfall", "Schedules", {}), f"{prefix}team/weekly"),
            ):
                answer = await asked(world, own, request, ADMIN)
                assert answer.startswith("200"), (request, answer)
                assert wanted in answer, (request, answer)
            # Of another tenant an administrator may say where, and of its own need not.
            other = Caller("AKIAOTHERADMIN", Role.ADMIN, "ops")
            named = {"TrainingJobName": f"{tenant}/run-1"}
            answer = await asked(world, own, ("sagemaker", "DescribeTrainingJob", named), other)
            assert f'"TrainingJobName": "{tenant}/run-1"' in answer
            stop = ("batch", "TerminateJob", {"jobId": ids["job"], "reason": "enough"})
            assert (await asked(world, own, stop, other)).startswith("200")
            failed = await asked(world, own, ("batch", "DescribeJobs", {"jobs": [ids["job"]]}), ADMIN)
            assert '"status": "FAILED"' in failed

    asyncio.run(test())
