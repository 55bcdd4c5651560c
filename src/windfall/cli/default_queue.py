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
#: Spot capacity first, on-demand capacity when a deadline needs it.
DEADLINE_NAME = "windfall-deadline"
#: More than any machine has: the default environment offers all of it, whatever it grows to.
MAX_VCPUS = 1_000_000


def choose_queue(client: Client, *, spot: bool = False, deadline: bool = False) -> tuple[str, bool]:
    """The queue called `windfall`, else the only one there is; for spot always its own. And whether it is there."""
    queues = {queue["jobQueueName"]: queue for queue in client.pages("DescribeJobQueues", "jobQueues")}
    wanted = (DEADLINE_NAME if deadline else SPOT_NAME) if spot else NAME
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
    """Make one of the default queues, with the compute environments that it needs; this needs an admin key."""
    environments = (SPOT_NAME, NAME) if name == DEADLINE_NAME else (name,)
    try:
        for environment in environments:
            _make_environment(client, environment)
    except RequestRefused as refusal:
        if refusal.code != "AccessDeniedException":
            raise
        option = {SPOT_NAME: " --spot", DEADLINE_NAME: " --spot --deadline 1h --work 1s"}.get(name, "")
        raise CliError(
            f"the queue {name!r} does not exist yet, and your key may not make it: ask an administrator of this"
            f" daemon to run `windfall run{option} -- true` once, or to make a queue"
        ) from None
    order = [
        {"order": number, "computeEnvironment": environment}
        for number, environment in enumerate(environments, start=1)
    ]
    _make(client, "CreateJobQueue", jobQueueName=name, priority=1, computeEnvironmentOrder=order)
    note(f"made the queue {name!r}")


def _make_environment(client: Client, name: str) -> None:
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
