"""What `windfall run` needs and a fresh daemon lacks: a compute environment, a queue and a job definition.

Made once and used ever after: every run overrides one definition per image, so that revisions do not pile up.
Must not change anything that a user made.
"""

from __future__ import annotations

from windfall.aws_api.batch.run_definitions import definition_name, plain_definition
from windfall.cli.client import Client
from windfall.cli.errors import CliError, RequestRefused
from windfall.cli.notes import note

NAME = "windfall"
SPOT_NAME = "windfall-spot"
#: More than any machine has: the default environment offers all of it, whatever it grows to.
MAX_VCPUS = 1_000_000


def choose_queue(client: Client, *, spot: bool = False) -> tuple[str, bool]:
    """The queue called `windfall`, else the only one there is; for spot always its own. And whether it is there."""
    queues = {queue["jobQueueName"]: queue for queue in client.pages("DescribeJobQueues", "jobQueues")}
    wanted = SPOT_NAME if spot else NAME
    if wanted in queues or spot:
        return wanted, wanted in queues
    # Queues that were made for another way in are nobody's choice.
    queues = {name: queue for name, queue in queues.items() if not name.startswith(f"{NAME}-")}
    enabled = [str(name) for name, queue in queues.items() if queue.get("state") == "ENABLED"]
    if len(enabled) == 1:
        return enabled[0], True
    if queues:
        raise CliError(f"which queue? name one with --queue: {', '.join(sorted(queues))}")
    return NAME, False


def make_queue(client: Client, name: str) -> None:
    """Make one of the default queues, with a compute environment of its own."""
    _make(
        client,
        "CreateComputeEnvironment",
        computeEnvironmentName=name,
        type="MANAGED",
        computeResources={
            "type": "SPOT" if name == SPOT_NAME else "EC2",
            "minvCpus": 0,
            "maxvCpus": MAX_VCPUS,
            "instanceTypes": ["optimal"],
            "subnets": [],
        },
    )
    order = [{"order": 1, "computeEnvironment": name}]
    _make(client, "CreateJobQueue", jobQueueName=name, priority=1, computeEnvironmentOrder=order)
    note(f"made the queue {name!r}")


def find_or_make_definition(client: Client, image: str | None = None) -> str:
    """The definition that every `windfall run` of one image overrides."""
    name = definition_name(image)
    answer = client.batch("DescribeJobDefinitions", jobDefinitionName=name, status="ACTIVE", maxResults=1)
    if not answer["jobDefinitions"]:
        client.batch("RegisterJobDefinition", **plain_definition(image))
    return name


def _make(client: Client, operation: str, **params: object) -> None:
    try:
        client.batch(operation, **params)
    except RequestRefused as refusal:
        # Another run was a moment faster, which is as good.
        if "already exists" not in str(refusal):
            raise
