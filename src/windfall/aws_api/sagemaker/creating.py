"""CreateTrainingJob: from a request to the command that submits it.

Decides what a training job runs: its image as SageMaker starts it, or in its place, as a process, its own entry point
or its script with this host's Python. Must not know which of them it will be, nor how it is placed or staged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windfall.aws_api.protocol.service import Call
from windfall.aws_api.sagemaker import contract, distribution, names, placement, script_mode
from windfall.aws_api.sagemaker.changing import tags_of
from windfall.aws_api.sagemaker.cluster import (
    HOST_PREFIX,
    TrainingHost,
    TrainingRequest,
    cluster_of,
    hosts_of,
)
from windfall.aws_api.sagemaker.context import TrainingContext, TrainingSettings
from windfall.aws_api.sagemaker.documents import Document, write_document
from windfall.aws_api.sagemaker.rejections import in_use
from windfall.aws_api.sagemaker.request_rules import check_request, is_spot, run_seconds
from windfall.control.events import SubmitTraining
from windfall.control.origins import attributed
from windfall.jobs.containers import ContainerOptions
from windfall.jobs.definitions import ContainerSpec, HostProgram
from windfall.jobs.images import find_mapping
from windfall.jobs.job import TimeLimits
from windfall.jobs.nodes import NodeGroup, Nodes
from windfall.jobs.resources import Resources

#: What SageMaker says to an image that is told nothing else.
TRAIN = "train"


async def create_training_job(context: TrainingContext, call: Call) -> dict[str, Any]:
    """CreateTrainingJob."""
    request = call.params
    check_request(request)
    tags = tags_of(request.get("Tags", ()))
    name = names.check_name(request["TrainingJobName"])
    arn = context.arn(call, name)
    script = _runnable_script(request)
    images = await context.read(lambda store: store.images())
    cluster = cluster_of(request["ResourceConfig"])
    machines = context.settings.machines()
    kinds = [(group.instance_type, group.count) for group in cluster.groups]
    places = dict(zip(cluster.groups, placement.places_for(kinds, machines), strict=True))
    groups = [
        _nodes_alike(call, arn, script, host, places[host[0].group], context.settings)
        for host in hosts_of(cluster)
    ]
    main, program_note = groups[0]
    if find_mapping(main.container.image, images) is not None:
        program_note = None
    assert main.staging is not None
    command = SubmitTraining(
        job_id=names.job_id(context.view, name),
        name=name,
        environment=placement.environment(is_spot(request), context.settings.engine, context.clock_ms()),
        container=main.container,
        staging=main.staging,
        limits=_limits(request, any(place.has_accelerator for place in places.values())),
        attempts=1 + request.get("RetryStrategy", {}).get("MaximumRetryAttempts", 0),
        instance_type=main.instance_type,
        tags=tags,
        submitter=call.caller.submitter,
        document=write_document(Document(_kept(request), _notes(places.values()), program_note)),
        nodes=_nodes([group for group, _ in groups]),
    )
    async with context.changing:
        if await context.find(name) is not None:
            raise in_use(
                "Training job names must be unique within an AWS account and region, "
                f"and a training job with this name already exists ({arn})"
            )
        await context.execute(attributed(command, call.origin))
    return {"TrainingJobArn": arn}


def _nodes_alike(
    call: Call,
    arn: str,
    script: script_mode.Script | None,
    alike: tuple[TrainingHost, int, int],
    place: placement.InstancePlacement,
    settings: TrainingSettings,
) -> tuple[NodeGroup, str | None]:
    """What hosts run and get that differ by their names alone; and what is to be said about it."""
    host, first, last = alike
    container, note = _container(call, arn, script, place.resources, settings, host)
    bucket_root = settings.storage.bucket_root(call.caller.tenant)
    staging = contract.staging_of(call.params, script, bucket_root, host)
    return NodeGroup(first, last, container, place.instance_type, staging=staging), note


def _nodes(groups: list[NodeGroup]) -> Nodes | None:
    """The hosts as nodes; None for a single one, which is a job like any other."""
    count = 1 + max(group.last for group in groups)
    return None if count == 1 else Nodes(count, 0, tuple(groups), peers=True, name_prefix=HOST_PREFIX)


def _notes(places: Iterable[placement.InstancePlacement]) -> str | None:
    """What the host lacks, said once."""
    return "; ".join(dict.fromkeys(place.note for place in places if place.note is not None)) or None


def _runnable_script(request: TrainingRequest) -> script_mode.Script | None:
    """The script of a request whose code can be fetched; code that only an image has cannot be run without it."""
    script = script_mode.script_of(request.get("HyperParameters", {}))
    return script if script is not None and contract.code_uri(request, script) is not None else None


def _limits(request: TrainingRequest, has_accelerator: bool) -> TimeLimits:
    condition = request["StoppingCondition"]
    return TimeLimits(
        run_s=run_seconds(request),
        wait_s=condition.get("MaxWaitTimeInSeconds"),
        # As on AWS, the bound on waiting for capacity is for accelerators.
        pending_s=condition.get("MaxPendingTimeInSeconds") if has_accelerator else None,
    )


def _kept(request: TrainingRequest) -> dict[str, Any]:
    """The request as Describe shows it: the core has the tags."""
    members = {member: value for member, value in request.items() if member != "Tags"}
    members["StoppingCondition"] = {
        **request["StoppingCondition"],
        "MaxRuntimeInSeconds": run_seconds(request),
    }
    return members


def _container(
    call: Call,
    arn: str,
    script: script_mode.Script | None,
    resources: Resources,
    settings: TrainingSettings,
    host: TrainingHost,
) -> tuple[ContainerSpec, str | None]:
    """What runs, and what to say about it if it runs as a process without its image."""
    request, algorithm = call.params, call.params["AlgorithmSpecification"]
    image = algorithm["TrainingImage"]
    entrypoint, words = algorithm.get("ContainerEntrypoint"), algorithm.get("ContainerArguments")
    environment = {
        "AWS_REGION": call.region,
        "AWS_DEFAULT_REGION": call.region,
        **request.get("Environment", {}),
        "TRAINING_JOB_NAME": request["TrainingJobName"],
        "TRAINING_JOB_ARN": arn,
    }
    note, on_host = None, None
    if entrypoint is not None:
        note = f"its entry point runs on this host, without the image {image}"
    elif script is not None:
        launcher = distribution.launcher_of(
            script, settings.python, host, resources, request["TrainingJobName"]
        )
        note = f"{script.program} runs with this host's Python ({settings.python}), without the image {image}"
        note += f", {launcher.note}" if launcher.note else ""
        on_host = _on_host(request, script, launcher, environment, resources, settings.python, host)
    else:
        # Nothing can stand in for it; the core then ends the job with words that say how to map the image.
        on_host = HostProgram()
    spec = ContainerSpec(
        image=image,
        resources=resources,
        command=tuple(words or ()) if entrypoint is not None else tuple(words or (TRAIN,)),
        environment=environment,
        log_group=names.LOG_GROUP,
        on_host=on_host,
        entrypoint=None if entrypoint is None else tuple(entrypoint),
        options=ContainerOptions(network="none" if request.get("EnableNetworkIsolation") else None),
    )
    return spec, note


def _on_host(
    request: TrainingRequest,
    script: script_mode.Script,
    launcher: distribution.Launcher,
    environment: Mapping[str, str],
    resources: Resources,
    python: str,
    host: TrainingHost,
) -> HostProgram:
    """A script as the training toolkit of an image would run it."""
    if launcher.refusal:
        return HostProgram(refusal=launcher.refusal)
    variables = script_mode.variables(
        script,
        request["TrainingJobName"],
        contract.channels_config(request, host),
        host,
        resources,
    )
    unbuffered = {} if "PYTHONUNBUFFERED" in environment else {"PYTHONUNBUFFERED": "1"}
    command = distribution.command_line(launcher, script) or script_mode.command_line(script, python)
    return HostProgram(command, {**unbuffered, **variables, **launcher.variables}, script_mode.CODE)
