"""CreateTrainingJob: from a request to the command that submits it.

Decides what a training job runs here: the mapping of its image, its own entry point, or its script with this
host's Python. Must not know how it is placed or staged: others say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windfall.aws_api.protocol.service import Call
from windfall.aws_api.sagemaker import contract, names, placement, script_mode
from windfall.aws_api.sagemaker.desk import Desk, TrainingSettings
from windfall.aws_api.sagemaker.documents import Document, write_document
from windfall.aws_api.sagemaker.rejections import in_use
from windfall.aws_api.sagemaker.request_rules import check_request, is_spot, run_seconds
from windfall.aws_api.sagemaker.tagging import tags_of
from windfall.control.events import SubmitTraining
from windfall.jobs.definitions import ContainerSpec
from windfall.jobs.images import ImageMapping, find_mapping
from windfall.jobs.job import TimeLimits
from windfall.jobs.resources import Resources

LOCAL = "local"

Request = Mapping[str, Any]


async def create_training_job(desk: Desk, call: Call) -> dict[str, Any]:
    """CreateTrainingJob."""
    request = call.params
    check_request(request)
    tags = tags_of(request.get("Tags", ()))
    name = request["TrainingJobName"]
    arn = desk.arn(call, name)
    script = _runnable_script(request)
    images = await desk.read(lambda store: store.images())
    place = placement.place_for(request["ResourceConfig"]["InstanceType"], _host(desk.settings))
    container, program_note = _container(call, arn, script, images, place.resources, desk.settings)
    command = SubmitTraining(
        job_id=names.job_id(name),
        name=name,
        environment=placement.environment(is_spot(request), desk.settings.engine, desk.clock_ms()),
        container=container,
        staging=contract.staging_of(request, script, desk.settings.object_root),
        limits=_limits(request, place.has_accelerator),
        attempts=1 + request.get("RetryStrategy", {}).get("MaximumRetryAttempts", 0),
        instance_type=place.instance_type,
        tags=tags,
        tenant=call.caller.tenant,
        document=write_document(Document(_kept(request), place.note, program_note)),
    )
    async with desk.changing:
        if await desk.find(name) is not None:
            raise in_use(
                "Training job names must be unique within an AWS account and region, "
                f"and a training job with this name already exists ({arn})"
            )
        await desk.execute(command)
    return {"TrainingJobArn": arn}


def _runnable_script(request: Request) -> script_mode.Script | None:
    """The script of a request whose code can be fetched; code that only an image has cannot be run without it."""
    script = script_mode.script_of(request.get("HyperParameters", {}))
    return script if script is not None and contract.code_uri(request, script) is not None else None


def _host(settings: TrainingSettings) -> Resources | None:
    """What the job may have at most, where it runs on this host; other engines have instances of the very type."""
    return settings.host() if settings.engine == LOCAL else None


def _limits(request: Request, has_accelerator: bool) -> TimeLimits:
    condition = request["StoppingCondition"]
    return TimeLimits(
        run_s=run_seconds(request),
        wait_s=condition.get("MaxWaitTimeInSeconds"),
        # As on AWS, the bound on waiting for capacity is for accelerators.
        pending_s=condition.get("MaxPendingTimeInSeconds") if has_accelerator else None,
    )


def _kept(request: Request) -> dict[str, Any]:
    """The request as Describe shows it: the core has the tags."""
    kept = {member: value for member, value in request.items() if member != "Tags"}
    kept["StoppingCondition"] = {**request["StoppingCondition"], "MaxRuntimeInSeconds": run_seconds(request)}
    return kept


def _container(
    call: Call,
    arn: str,
    script: script_mode.Script | None,
    images: Sequence[ImageMapping],
    resources: Resources,
    settings: TrainingSettings,
) -> tuple[ContainerSpec, str | None]:
    """What runs, and what to say about it.

    An image that is neither mapped nor has an entry point or script of its own gets no command; the core then ends the
    job with words that say how to map it.
    """
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
    note, directory = None, None
    mapped = find_mapping(image, images) is not None
    command: tuple[str, ...] = ()
    if entrypoint is not None:
        command = tuple(words or ())
        if not mapped:
            note = f"its entry point runs on this host, without the image {image}"
    elif mapped:
        command = tuple(words or ("train",))
    elif script is not None:
        command = script_mode.command_line(script, settings.python)
        note = f"{script.program} runs with this host's Python ({settings.python}), without the image {image}"
        directory = script_mode.CODE
        environment = {
            "PYTHONUNBUFFERED": "1",
            **environment,
            **script_mode.variables(
                script,
                request["TrainingJobName"],
                contract.channels_config(request),
                request["ResourceConfig"]["InstanceType"],
                resources,
            ),
        }
    spec = ContainerSpec(
        image=image,
        resources=resources,
        command=command,
        environment=environment,
        log_group=names.LOG_GROUP,
        directory=directory,
        entrypoint=None if entrypoint is None else tuple(entrypoint),
    )
    return spec, note
