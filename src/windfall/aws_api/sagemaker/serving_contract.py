"""The serving contract: what a replica of a model runs, and what lies in /opt/ml before it starts.

Decides the container `IMAGE serve`, and in its place, as a process, the image's mapping or Windfall's model server with
the model's inference.py. Must not know which of them it will be, nor how a replica is placed or asked.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from windfall.aws_api.protocol.service import Call
from windfall.aws_api.sagemaker import placement
from windfall.aws_api.sagemaker.context import TrainingContext
from windfall.aws_api.sagemaker.contract import FAILURE, MODEL
from windfall.aws_api.sagemaker.hosting_names import LOG_GROUP
from windfall.aws_api.sagemaker.hosting_rules import Request, container_of
from windfall.aws_api.sagemaker.rejections import invalid, shown
from windfall.aws_api.sagemaker.script_mode import CODE
from windfall.hosting.endpoint import STARTUP_S, Variant
from windfall.jobs.definitions import ContainerSpec, HostProgram
from windfall.jobs.images import ImageMapping, find_mapping
from windfall.jobs.resources import Resources
from windfall.jobs.staging import ML_ROOT, Archive, Channel, Staging, TextFile
from windfall.jobs.storage import object_uri

#: What SageMaker says to an image that is to answer requests.
SERVE = "serve"
_PROGRAM, _SUBMIT_DIRECTORY = "SAGEMAKER_PROGRAM", "SAGEMAKER_SUBMIT_DIRECTORY"
#: Where code lies in a model's archive, and what it is called where nobody says.
_MODEL_CODE, _DEFAULT_PROGRAM = f"{MODEL}/code", "inference.py"
_SERVER = f"{ML_ROOT}/server/model_server.py"


def variants_of(
    context: TrainingContext,
    call: Call,
    endpoint: str,
    config: Request,
    models: Mapping[str, Request],
    mappings: Sequence[ImageMapping],
) -> tuple[Variant, ...]:
    """The variants of a configuration, given the requests of its models by their names."""
    wanted = config["ProductionVariants"]
    places = _places(wanted, context.settings.machines())
    return tuple(
        _variant(context, call, endpoint, request, models[request["ModelName"]], place, mappings)
        for request, place in zip(wanted, places, strict=True)
    )


def _places(wanted: Sequence[Request], machines: Sequence[Resources]) -> list[placement.InstancePlacement]:
    """What each variant's replicas get: on the only machine at most what leaves room for as many again.

    Where an update starts new replicas beside the old ones, both must have a place. GPUs are not divided.
    """
    if not machines:
        return [placement.place_for(request["InstanceType"], ()) for request in wanted]
    doubled = [(request["InstanceType"], 2 * _count(request)) for request in wanted]
    parts = placement.places_for(doubled, machines)
    wholes = [placement.place_for(request["InstanceType"], machines) for request in wanted]
    return [
        placement.InstancePlacement(
            part.instance_type,
            Resources(part.resources.vcpus, part.resources.memory_mib, whole.resources.gpus),
            part.has_accelerator,
            whole.note,
        )
        for part, whole in zip(parts, wholes, strict=True)
    ]


def _count(request: Request) -> int:
    return int(request.get("InitialInstanceCount", 1))


def _variant(
    context: TrainingContext,
    call: Call,
    endpoint: str,
    request: Request,
    model: Request,
    place: placement.InstancePlacement,
    mappings: Sequence[ImageMapping],
) -> Variant:
    container = container_of(model)
    program = program_of(container)
    bucket_root = context.settings.storage.bucket_root(call.caller.tenant)
    weight = float(request.get("InitialVariantWeight", 1.0))
    mapped = find_mapping(container["Image"], mappings) is not None
    notes = [
        place.note,
        None if mapped or program is None else _program_note(container, context.settings.python),
    ]
    return Variant(
        name=request["VariantName"],
        count=_count(request),
        weight=weight,
        initial_count=_count(request),
        initial_weight=weight,
        model=request["ModelName"],
        container=_container(call, endpoint, request, container, place.resources, context.settings.python),
        staging=_staging(container, bucket_root),
        instance_type=place.instance_type,
        startup_s=int(request.get("ContainerStartupHealthCheckTimeoutInSeconds", STARTUP_S)),
        note="; ".join(note for note in notes if note) or None,
    )


def program_of(container: Request) -> str | None:
    """The script that Windfall's model server runs in place of the image; None for a model without any files."""
    environment = container.get("Environment", {})
    program: str | None = environment.get(_PROGRAM)
    if program is None:
        return _DEFAULT_PROGRAM if container.get("ModelDataUrl") or container.get("ModelDataSource") else None
    path = posixpath.normpath(program)
    if path.startswith(("/", "..", "-")) or path == ".":
        raise invalid(f"{_PROGRAM} must be a path inside the code directory, got {shown(program)}")
    return path


def _program_note(container: Request, python: str) -> str:
    return f"as a process, {program_of(container)} runs with this host's Python ({python}), without its image"


def _code_directory(container: Request) -> str:
    source = container.get("Environment", {}).get(_SUBMIT_DIRECTORY, "")
    return CODE if source.startswith("s3://") else _MODEL_CODE


def _container(
    call: Call, endpoint: str, variant: Request, container: Request, resources: Resources, python: str
) -> ContainerSpec:
    environment = {
        "AWS_REGION": call.region,
        "AWS_DEFAULT_REGION": call.region,
        **container.get("Environment", {}),
    }
    return ContainerSpec(
        image=container["Image"],
        resources=resources,
        command=(SERVE,),
        environment=environment,
        log_group=f"{LOG_GROUP}/{endpoint}",
        log_prefix=variant["VariantName"],
        on_host=_on_host(container, environment, python),
    )


def _on_host(container: Request, environment: Mapping[str, str], python: str) -> HostProgram:
    """The model server, as the inference toolkit of an image would run the script."""
    program = program_of(container)
    if program is None:
        return HostProgram()  # The core says how to map the image.
    unbuffered = {} if "PYTHONUNBUFFERED" in environment else {"PYTHONUNBUFFERED": "1"}
    directories = {"SM_MODEL_DIR": MODEL, "WINDFALL_FAILURE_FILE": FAILURE}
    command = (python, _SERVER, "--code", _code_directory(container), "--program", program)
    return HostProgram(command, {**unbuffered, **directories}, MODEL)


def _staging(container: Request, bucket_root: str | None) -> Staging:
    archives, channels = [], []
    source: Mapping[str, Any] = container.get("ModelDataSource", {}).get("S3DataSource", {})
    if source.get("S3DataType") == "S3Prefix":
        uri = object_uri(source["S3Uri"], bucket_root)
        channels.append(Channel("model", uri, path=MODEL))
    elif url := container.get("ModelDataUrl") or source.get("S3Uri"):
        archives.append(Archive(object_uri(url, bucket_root), MODEL))
    code = container.get("Environment", {}).get(_SUBMIT_DIRECTORY, "")
    if code.startswith("s3://"):
        archives.append(Archive(object_uri(code, bucket_root), CODE))
    return Staging(
        archives=tuple(archives),
        channels=tuple(channels),
        files=(TextFile(_SERVER, _server_text()),),
        directories=(MODEL, CODE, posixpath.dirname(FAILURE), posixpath.dirname(_SERVER)),
        failure_path=FAILURE,
        wants_ml_root=True,
        shares_object_credentials=True,
    )


@cache
def _server_text() -> str:
    return files("windfall.worker").joinpath("model_server.py").read_text(encoding="utf-8")
