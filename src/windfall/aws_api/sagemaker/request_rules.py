"""What CreateTrainingJob refuses beyond what AWS's model of the request refuses by itself.

Decides which members contradict one another and which cannot be honoured here. Must not know what becomes of
a request that is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from windfall.aws_api.sagemaker.cluster import TrainingRequest, cluster_of
from windfall.aws_api.sagemaker.members import REFUSED
from windfall.aws_api.sagemaker.rejections import invalid, missing, shown, unsupported

#: 28 days.
MAX_RUN_S = 28 * 24 * 3600
DEFAULT_RUN_S = 24 * 3600


def check_request(request: TrainingRequest) -> None:
    """Raise unless the request can be carried out as it stands."""
    needed = ("AlgorithmSpecification", "ResourceConfig", "StoppingCondition")
    for member, instead in REFUSED.items():
        if _value_at(request, member) not in (None, "", [], {}):
            raise unsupported(member, instead)
    if lacking := [member for member in needed if member not in request]:
        raise missing(*(member[0].lower() + member[1:] for member in lacking))
    _check_cluster(request)
    _check_times(request)
    _check_algorithm(request["AlgorithmSpecification"])
    _check_channels(request)
    check_uri(request["OutputDataConfig"]["S3OutputPath"], "OutputDataConfig.S3OutputPath")
    _check_checkpoints(request.get("CheckpointConfig"))


def run_seconds(request: TrainingRequest) -> int:
    """How long it may run in all; a day when it does not say."""
    return int(request["StoppingCondition"].get("MaxRuntimeInSeconds", DEFAULT_RUN_S))


def is_spot(request: TrainingRequest) -> bool:
    """Whether it asks for managed spot training."""
    return bool(request.get("EnableManagedSpotTraining"))


def input_mode(request: TrainingRequest, channel: TrainingRequest) -> str:
    """File, FastFile or Pipe: the channel's own, or that of all channels."""
    return str(channel.get("InputMode") or request["AlgorithmSpecification"]["TrainingInputMode"])


def check_uri(uri: str, member: str) -> None:
    """Raise unless a location is one that object storage can be asked for here."""
    if uri.startswith("https://"):
        raise invalid(
            f"{member} must begin with s3:// here, got {shown(uri)}; write it as s3://BUCKET/PREFIX"
        )


def _value_at(request: TrainingRequest, path: str) -> Any:
    value: Any = request
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _check_cluster(request: TrainingRequest) -> None:
    cluster = cluster_of(request["ResourceConfig"])
    if cluster.count > 1 and request.get("EnableNetworkIsolation"):
        raise unsupported(
            "EnableNetworkIsolation with several instances",
            "they talk over this host's network: leave it out, or use one instance",
        )
    group_names = {group.name for group in cluster.groups}
    for channel in request.get("InputDataConfig", ()):
        for name in channel["DataSource"].get("S3DataSource", {}).get("InstanceGroupNames", ()):
            if name not in group_names:
                raise invalid(
                    f"InstanceGroupNames of channel {channel['ChannelName']} has {shown(name)}, which is not one of"
                    f" the job's instance groups: {', '.join(sorted(group_names))}"
                )


def _check_times(request: TrainingRequest) -> None:
    condition = request["StoppingCondition"]
    run_s, wait_s = run_seconds(request), condition.get("MaxWaitTimeInSeconds")
    if run_s > MAX_RUN_S:
        raise invalid(f"Invalid MaxRuntimeInSeconds. It must be at most {MAX_RUN_S} (28 days), got {run_s}")
    if not is_spot(request):
        if wait_s is not None:
            raise invalid(
                "Invalid MaxWaitTimeInSeconds. It is only supported when EnableManagedSpotTraining is set to true"
            )
    elif wait_s is None or wait_s < run_s:
        raise invalid(
            "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal to MaxRuntimeInSeconds"
        )


def _check_algorithm(algorithm: TrainingRequest) -> None:
    if "TrainingImage" not in algorithm:
        raise invalid("AlgorithmSpecification must have a TrainingImage")
    seen: set[str] = set()
    for metric in algorithm.get("MetricDefinitions", ()):
        if metric["Name"] in seen:
            raise invalid(f"MetricDefinitions has the name {shown(metric['Name'])} more than once")
        seen.add(metric["Name"])
        try:
            groups = re.compile(metric["Regex"]).groups
        except (re.error, RecursionError, OverflowError) as error:
            raise invalid(
                f"The Regex of metric {shown(metric['Name'])} cannot be read: {error}; "
                "write it as Python's re module reads it"
            ) from None
        if groups == 0:
            raise invalid(
                f"The Regex of metric {shown(metric['Name'])} needs a group in parentheses around the number"
            )


def _check_channels(request: TrainingRequest) -> None:
    seen: set[str] = set()
    for channel in request.get("InputDataConfig", ()):
        name, mode = channel["ChannelName"], input_mode(request, channel)
        if name in seen:
            raise invalid(f"InputDataConfig has the channel {name} more than once")
        if name in (".", ".."):
            raise invalid(f"ChannelName {name} cannot be a directory's name; choose another")
        seen.add(name)
        source = channel["DataSource"]
        for kind in ("FileSystemDataSource", "DatasetSource"):
            if source.get(kind):
                raise unsupported(f"DataSource.{kind} of channel {name}", "put the data into S3")
        if not source.get("S3DataSource"):
            raise invalid(f"DataSource of channel {name} must have an S3DataSource")
        _check_source(name, mode, channel, source["S3DataSource"])


def _check_source(name: str, mode: str, channel: TrainingRequest, source: TrainingRequest) -> None:
    kind = source["S3DataType"]
    check_uri(source["S3Uri"], f"S3Uri of channel {name}")
    if kind == "Converse":
        raise unsupported(f"S3DataType Converse of channel {name}", "use S3Prefix")
    if mode == "FastFile" and kind != "S3Prefix":
        raise invalid(f"Channel {name}: FastFile mode needs S3DataType S3Prefix, got {kind}")
    if mode != "Pipe":
        if kind == "AugmentedManifestFile":
            raise invalid(f"Channel {name}: S3DataType AugmentedManifestFile is only supported in Pipe mode")
        if channel.get("CompressionType", "None") != "None":
            raise invalid(f"Channel {name}: CompressionType Gzip is only supported in Pipe mode")
        if channel.get("RecordWrapperType", "None") != "None":
            raise invalid(f"Channel {name}: RecordWrapperType RecordIO is only supported in Pipe mode")
    if kind == "AugmentedManifestFile" and not source.get("AttributeNames"):
        raise invalid(f"Channel {name}: S3DataType AugmentedManifestFile needs AttributeNames")


def _check_checkpoints(config: TrainingRequest | None) -> None:
    if config is None:
        return
    check_uri(config["S3Uri"], "CheckpointConfig.S3Uri")
    path = config.get("LocalPath", "/")
    if not path.startswith("/") or ".." in path.split("/"):
        raise invalid(f"CheckpointConfig.LocalPath must be an absolute path without '..', got {shown(path)}")
