"""Which members of requests are refused, and which are kept and returned without doing anything.

Everything else that an operation's model has does what AWS says it does. The handlers refuse by this table
and the coverage page is written from it. Nested members are written with a dot. Must not know how anything is
done.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Of CreateTrainingJob: member -> what to do instead.
REFUSED: Mapping[str, str] = {
    "AlgorithmSpecification.AlgorithmName": "name a TrainingImage",
    "ServerlessJobConfig": "name a TrainingImage and a ResourceConfig",
    "ResourceConfig.InstancePreferences": "set InstanceType",
}

#: Operation -> members that are kept and returned as they were sent, and change nothing here.
KEPT: Mapping[str, tuple[str, ...]] = {
    "CreateTrainingJob": (
        "RoleArn",
        "VpcConfig",
        "EnableInterContainerTrafficEncryption",
        "DebugHookConfig",
        "DebugRuleConfigurations",
        "TensorBoardOutputConfig",
        "ExperimentConfig",
        "ProfilerConfig",
        "ProfilerRuleConfigurations",
        "RemoteDebugConfig",
        "InfraCheckConfig",
        "SessionChainingConfig",
        "MlflowConfig",
        "ModelPackageConfig",
        "OutputDataConfig.KmsKeyId",
        "ResourceConfig.VolumeSizeInGB",
        "ResourceConfig.VolumeKmsKeyId",
        "ResourceConfig.TrainingPlanArn",
        "ResourceConfig.InstancePlacementConfig",
        "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries",
        "AlgorithmSpecification.TrainingImageConfig",
    ),
    "UpdateTrainingJob": ("ProfilerConfig", "ProfilerRuleConfigurations", "RemoteDebugConfig"),
}
