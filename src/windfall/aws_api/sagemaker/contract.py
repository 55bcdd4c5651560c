"""The container contract of /opt/ml: what lies there before the start and what is taken away after the end.

Decides the staging of a training job: configuration files, channels, checkpoints, code, outputs. Pure. Must
not know how anything is moved, nor what the job runs.
"""

from __future__ import annotations

import json
from typing import Any

from windfall.aws_api.sagemaker.cluster import TrainingHost, TrainingRequest
from windfall.aws_api.sagemaker.request_rules import input_mode
from windfall.aws_api.sagemaker.script_mode import CODE, Script
from windfall.jobs.staging import (
    CHECKPOINT_PATH,
    ML_ROOT,
    Archive,
    Channel,
    Checkpoints,
    Output,
    Staging,
    TextFile,
)
from windfall.jobs.storage import object_uri

CONFIG = f"{ML_ROOT}/input/config"
MODEL, OUTPUT_DATA = f"{ML_ROOT}/model", f"{ML_ROOT}/output/data"
FAILURE = f"{ML_ROOT}/output/failure"
DIRECTORIES = (
    CONFIG,
    f"{ML_ROOT}/input/data",
    MODEL,
    OUTPUT_DATA,
    f"{ML_ROOT}/output/intermediate",
    CODE,
)


def staging_of(
    request: TrainingRequest, script: Script | None, bucket_root: str | None, host: TrainingHost
) -> Staging:
    """All that has to be brought for a training job's host and taken from it."""
    checkpoints = request.get("CheckpointConfig")
    code = None if script is None else code_uri(request, script)
    return Staging(
        checkpoints=None if checkpoints is None else _checkpoints(checkpoints, bucket_root),
        archives=() if code is None else (Archive(object_uri(code, bucket_root), CODE),),
        files=tuple(
            TextFile(f"{CONFIG}/{name}.json", json.dumps(content, sort_keys=True))
            for name, content in _configuration(request, host).items()
        ),
        channels=tuple(
            _channel(request, channel, bucket_root, host) for channel in channels_of(request, host)
        ),
        directories=DIRECTORIES,
        outputs=_outputs(request, bucket_root),
        failure_path=FAILURE,
        wants_ml_root=True,
        # A job that must not speak to the network has no use for them either.
        shares_object_credentials=not request.get("EnableNetworkIsolation", False),
    )


def code_uri(request: TrainingRequest, script: Script) -> str | None:
    """Where the archive of a script's code is; None when it is somewhere that only an image has.

    With network isolation clients send the code through a channel and name the archive by its path there.
    """
    source = script.source or ""
    if source.startswith("s3://"):
        return source
    for channel in request.get("InputDataConfig", ()):
        inside = f"{ML_ROOT}/input/data/{channel['ChannelName']}/"
        if source.startswith(inside):
            uri: str = channel["DataSource"]["S3DataSource"]["S3Uri"]
            file = source.removeprefix(inside)
            return uri if uri.endswith(f"/{file}") else f"{uri.rstrip('/')}/{file}"
    return None


def output_prefix(request: TrainingRequest) -> str:
    """Where a job's results go: `<S3OutputPath>/<name>/output`."""
    path = request["OutputDataConfig"]["S3OutputPath"].rstrip("/")
    return f"{path}/{request['TrainingJobName']}/output"


def model_uri(request: TrainingRequest) -> str:
    """The model as ModelArtifacts names it: an archive, or a prefix of plain files."""
    return f"{output_prefix(request)}/{'model.tar.gz' if _compressed(request) else 'model/'}"


def channels_of(request: TrainingRequest, host: TrainingHost) -> list[TrainingRequest]:
    """The channels of a host: those that name its group, and those that name none."""
    return [
        channel
        for channel in request.get("InputDataConfig", ())
        if not (named := _group_names(channel)) or host.group.name in named
    ]


def channels_config(request: TrainingRequest, host: TrainingHost) -> dict[str, dict[str, str]]:
    """inputdataconfig.json. A FastFile channel reads like a File one, and is called so."""
    configs = {}
    for channel in channels_of(request, host):
        mode = input_mode(request, channel)
        config = {
            "TrainingInputMode": "File" if mode == "FastFile" else mode,
            "S3DistributionType": channel["DataSource"]["S3DataSource"].get(
                "S3DataDistributionType", "FullyReplicated"
            ),
            "RecordWrapperType": channel.get("RecordWrapperType", "None"),
        }
        if "ContentType" in channel:
            config["ContentType"] = channel["ContentType"]
        configs[channel["ChannelName"]] = config
    return configs


def _group_names(channel: TrainingRequest) -> list[str]:
    return list(channel["DataSource"]["S3DataSource"].get("InstanceGroupNames", ()))


def _configuration(request: TrainingRequest, host: TrainingHost) -> dict[str, Any]:
    """The files of input/config, by name without .json."""
    files: dict[str, Any] = {
        "hyperparameters": request.get("HyperParameters", {}),
        "inputdataconfig": channels_config(request, host),
        "resourceconfig": host.config,
    }
    if "CheckpointConfig" in request:
        files["checkpointconfig"] = {"LocalPath": _local_path(request["CheckpointConfig"])}
    if metrics := request["AlgorithmSpecification"].get("MetricDefinitions"):
        files["metric-definition-regex"] = [
            {"name": metric["Name"], "regex": metric["Regex"]} for metric in metrics
        ]
    for member in ("DebugHookConfig", "ProfilerConfig"):
        if member in request:
            files[member.lower()] = request[member]
    return files


def _checkpoints(config: TrainingRequest, bucket_root: str | None) -> Checkpoints:
    uri = object_uri(config["S3Uri"].rstrip("/"), bucket_root)
    return Checkpoints(uri, _local_path(config), publish=True)


def _local_path(config: TrainingRequest) -> str:
    return str(config.get("LocalPath") or CHECKPOINT_PATH).rstrip("/") or CHECKPOINT_PATH


def _channel(
    request: TrainingRequest, channel: TrainingRequest, bucket_root: str | None, host: TrainingHost
) -> Channel:
    source = channel["DataSource"]["S3DataSource"]
    is_divided = source.get("S3DataDistributionType") == "ShardedByS3Key" and host.cluster.count > 1
    return Channel(
        name=channel["ChannelName"],
        uri=object_uri(source["S3Uri"], bucket_root),
        mode=input_mode(request, channel),
        kind=source["S3DataType"],
        compression=_unless_none(channel.get("CompressionType")),
        record_wrapper=_unless_none(channel.get("RecordWrapperType")),
        shuffle_seed=channel.get("ShuffleConfig", {}).get("Seed"),
        attributes=tuple(source.get("AttributeNames", ())),
        divided_among=host.cluster.numbers(_group_names(channel)) if is_divided else (),
    )


def _unless_none(word: str | None) -> str | None:
    return None if word == "None" else word


def _compressed(request: TrainingRequest) -> bool:
    return bool(request["OutputDataConfig"].get("CompressionType", "GZIP") == "GZIP")


def _outputs(request: TrainingRequest, bucket_root: str | None) -> tuple[Output, ...]:
    prefix = object_uri(output_prefix(request), bucket_root)
    if _compressed(request):
        return (
            Output(MODEL, f"{prefix}/model.tar.gz"),
            Output(OUTPUT_DATA, f"{prefix}/output.tar.gz"),
        )
    return (
        Output(MODEL, f"{prefix}/model", archived=False),
        Output(OUTPUT_DATA, f"{prefix}/data", archived=False),
    )
