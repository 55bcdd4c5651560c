"""What `windfall run` needs and a fresh daemon lacks: a compute environment, a queue and a job definition.

Made once and used ever after: every run overrides the one definition, so that revisions do not pile up.
Must not change anything that a user made.
"""

from __future__ import annotations

from windfall.cli.client import Client
from windfall.cli.errors import CliError, Refused
from windfall.cli.notes import note

NAME = "windfall"
IMAGE = "windfall/host"
DEFINITION = "windfall-run"
#: More than any machine has: the default environment offers all of it, whatever it grows to.
MAX_VCPUS = 1_000_000


def find_or_make_queue(client: Client) -> str:
    """The queue called `windfall`, else the only one there is, else a new one."""
    found = {queue["jobQueueName"]: queue for queue in client.pages("DescribeJobQueues", "jobQueues")}
    if NAME in found:
        return NAME
    enabled = [str(name) for name, queue in found.items() if queue.get("state") == "ENABLED"]
    if len(enabled) == 1:
        return enabled[0]
    if found:
        raise CliError(f"which queue? name one with --queue: {', '.join(sorted(found))}")
    _make(
        client,
        "CreateComputeEnvironment",
        computeEnvironmentName=NAME,
        type="MANAGED",
        computeResources={
            "type": "EC2",
            "minvCpus": 0,
            "maxvCpus": MAX_VCPUS,
            "instanceTypes": ["optimal"],
            "subnets": [],
        },
    )
    order = [{"order": 1, "computeEnvironment": NAME}]
    _make(client, "CreateJobQueue", jobQueueName=NAME, priority=1, computeEnvironmentOrder=order)
    note(f"made the compute environment and the job queue {NAME!r}")
    return NAME


def find_or_make_definition(client: Client) -> str:
    """The definition that every `windfall run` overrides."""
    answer = client.batch(
        "DescribeJobDefinitions", jobDefinitionName=DEFINITION, status="ACTIVE", maxResults=1
    )
    if not answer["jobDefinitions"]:
        client.batch(
            "RegisterJobDefinition",
            jobDefinitionName=DEFINITION,
            type="container",
            containerProperties={
                "image": IMAGE,
                "command": [],
                "resourceRequirements": [
                    {"type": "VCPU", "value": "1"},
                    {"type": "MEMORY", "value": "2048"},
                ],
            },
        )
    return DEFINITION


def _make(client: Client, operation: str, **params: object) -> None:
    try:
        client.batch(operation, **params)
    except Refused as refusal:
        # Another run was a moment faster, which is as good.
        if "already exists" not in str(refusal):
            raise
