"""Which members of requests about models and endpoints are refused, and which are kept without doing anything.

The handlers refuse by these tables and the coverage page is written from them. Nested members are written with a dot.
Must not know what becomes of a request that is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windfall.aws_api.sagemaker.rejections import invalid, shown, unsupported
from windfall.aws_api.sagemaker.request_rules import check_uri

Request = Mapping[str, Any]

_OF_CONTAINER = {
    "ModelPackageName": "name an Image and its model data",
    "InferenceSpecificationName": "name an Image and its model data",
    "MultiModelConfig": "create an endpoint for each model",
    "AdditionalModelDataSources": "put everything into one model archive or prefix",
}
_OF_VARIANT = {
    "InstancePools": "set InstanceType",
    "AcceleratorType": "set an InstanceType that has the accelerator",
    "CoreDumpConfig": "look at the logs of the endpoint",
    "ServerlessConfig": "set InstanceType and InitialInstanceCount",
    "EnableSSMAccess": "use `windfall exec` with the id of the replica",
    "ManagedInstanceScaling": "set the number of instances with UpdateEndpointWeightsAndCapacities",
    "AcceleratorPartitionLayouts": "ask for a part of a GPU with the tag windfall:gpu-share",
}
_NO_ALARMS = "leave it out: an update whose replicas fail is rolled back by itself"
#: Operation -> member -> what to do instead.
REFUSED: Mapping[str, Mapping[str, str]] = {
    "CreateModel": {
        **{f"PrimaryContainer.{member}": instead for member, instead in _OF_CONTAINER.items()},
        **{f"Containers.{member}": instead for member, instead in _OF_CONTAINER.items()},
        "EnableNetworkIsolation": "leave it out: requests reach a replica over the network",
    },
    "CreateEndpointConfig": {
        **{f"ProductionVariants.{member}": instead for member, instead in _OF_VARIANT.items()},
        "ShadowProductionVariants": "create a second endpoint and send it copies",
        "AsyncInferenceConfig": "use InvokeEndpoint, or a Batch job for long work",
        "ExplainerConfig": "explain inside the container",
        "DataCaptureConfig.EnableCapture": "write requests down in the container",
        "EnableNetworkIsolation": "leave it out: requests reach a replica over the network",
    },
    "CreateEndpoint": {"DeploymentConfig.AutoRollbackConfiguration.Alarms": _NO_ALARMS},
    "UpdateEndpoint": {
        "DeploymentConfig.AutoRollbackConfiguration.Alarms": _NO_ALARMS,
        "ExcludeRetainedVariantProperties": "leave out RetainAllVariantProperties",
    },
    "UpdateEndpointWeightsAndCapacities": {
        "DesiredWeightsAndCapacities.ServerlessUpdateConfig": "set DesiredInstanceCount"
    },
}
_KEPT_OF_CONTAINER = ("ImageConfig", "ContainerMetricsConfig", "ContainerHostname")
#: Operation -> members that are kept and returned as they were sent, and change nothing here.
KEPT: Mapping[str, tuple[str, ...]] = {
    "CreateModel": (
        "ExecutionRoleArn",
        "VpcConfig",
        "InferenceExecutionConfig",
        *(f"PrimaryContainer.{member}" for member in _KEPT_OF_CONTAINER),
        *(f"Containers.{member}" for member in _KEPT_OF_CONTAINER),
    ),
    "CreateEndpointConfig": (
        "KmsKeyId",
        "ExecutionRoleArn",
        "VpcConfig",
        "MetricsConfig",
        "DataCaptureConfig",
        "ProductionVariants.VolumeSizeInGB",
        "ProductionVariants.ModelDataDownloadTimeoutInSeconds",
        "ProductionVariants.VariantInstanceProvisionTimeoutInSeconds",
        "ProductionVariants.InferenceAmiVersion",
        "ProductionVariants.RoutingConfig",
        "ProductionVariants.CapacityReservationConfig",
    ),
    "UpdateEndpoint": (
        "DeploymentConfig.RollingUpdatePolicy.RollbackMaximumBatchSize",
        "RetainDeploymentConfig",
    ),
}


def check_refused(operation: str, request: Request) -> None:
    """Raise for the first member of a request that is not supported here."""
    for member, instead in REFUSED.get(operation, {}).items():
        if any(value not in (None, "", [], {}, False) for value in _values_at(request, member.split("."))):
            raise unsupported(member, instead)


def _values_at(value: Any, path: list[str]) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _values_at(item, path)
    elif not path:
        yield value
    elif isinstance(value, Mapping):
        yield from _values_at(value.get(path[0]), path[1:])


def check_model(request: Request) -> None:
    """Raise unless a model can be served as it stands."""
    check_refused("CreateModel", request)
    if ("PrimaryContainer" in request) == bool(request.get("Containers")):
        raise invalid("Exactly one of PrimaryContainer and Containers must be given")
    if len(request.get("Containers", ())) > 1:
        raise unsupported("Containers with more than one container", "put the steps into one container")
    container = container_of(request)
    if "Image" not in container:
        raise invalid("The container of a model must have an Image")
    if container.get("Mode", "SingleModel") != "SingleModel":
        raise unsupported("Mode MultiModel", "create an endpoint for each model")
    if container.get("ModelDataUrl") and container.get("ModelDataSource"):
        raise invalid("Only one of ModelDataUrl and ModelDataSource can be given")
    if url := container.get("ModelDataUrl"):
        check_uri(url, "ModelDataUrl")
        if not url.endswith((".tar.gz", ".tgz")):
            raise invalid(
                f"ModelDataUrl must name an archive that ends with .tar.gz, got {shown(url)}; name a prefix with"
                " ModelDataSource"
            )
    _check_source(container.get("ModelDataSource", {}).get("S3DataSource"))


def _check_source(source: Request | None) -> None:
    if source is None:
        return
    check_uri(source["S3Uri"], "ModelDataSource.S3DataSource.S3Uri")
    form = (source["S3DataType"], source["CompressionType"])
    if form not in (("S3Object", "Gzip"), ("S3Prefix", "None")):
        raise unsupported(
            f"S3DataType {form[0]} with CompressionType {form[1]}",
            "name a .tar.gz (S3Object, Gzip) or a prefix of plain files (S3Prefix, None)",
        )
    for member in ("HubAccessConfig", "ManifestS3Uri", "ManifestEtag"):
        if source.get(member):
            raise unsupported(f"S3DataSource.{member}", "copy the model to object storage")


def container_of(request: Request) -> Request:
    """The one container of a model."""
    container: Request = (
        request["PrimaryContainer"] if "PrimaryContainer" in request else request["Containers"][0]
    )
    return container


def check_config(request: Request) -> None:
    """Raise unless an endpoint can be made of a configuration."""
    check_refused("CreateEndpointConfig", request)
    names: set[str] = set()
    for variant in request["ProductionVariants"]:
        name = variant["VariantName"]
        if name in names:
            raise invalid(f"ProductionVariants has the variant {name} more than once")
        names.add(name)
        for member in ("ModelName", "InstanceType"):
            if member not in variant:
                raise invalid(f"Variant {name} must have {member}; inference components are not supported")
    if not any(variant.get("InitialVariantWeight", 1.0) > 0 for variant in request["ProductionVariants"]):
        raise invalid("At least one variant must have an InitialVariantWeight above 0")
