"""CreateTrainingJob: what a request becomes, and every refusal with its words."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError

from tests.unit.aws_api.sagemaker.world import (
    ARN,
    IMAGE,
    NOW,
    SCRIPT,
    SPOT,
    a_channel,
    a_group,
    a_request,
    a_training_job,
)
from windfall.capacity.environments import Provisioning
from windfall.jobs.errors import Conflict, Invalid
from windfall.jobs.images import ImageMapping, container_run, host_command
from windfall.jobs.job import TimeLimits
from windfall.jobs.nodes import OWN_NAME
from windfall.jobs.resources import Resources
from windfall.jobs.staging import Channel, Checkpoints, Output
from windfall.jobs.states import SUCCEEDED
from windfall.jobs.storage import StorageLayout


def test_boto3_creates_a_job_on_demand(world):
    answer = world.client().create_training_job(**a_request(Tags=[{"Key": "team", "Value": "vision"}]))
    assert answer["TrainingJobArn"] == f"{ARN}/first"
    command = world.last
    assert (command.job_id, command.name, command.submitter.tenant) == ("training-first", "first", "default")
    assert command.tags == {"team": "vision"}
    environment = command.environment
    assert (environment.name, environment.provisioning) == ("windfall-training-on-demand", Provisioning.EC2)
    assert (environment.engine, environment.created_at) == (None, world.now)
    assert command.container.resources == Resources(2, 8192)
    assert command.container.log_group == "/aws/sagemaker/TrainingJobs"
    assert command.limits == TimeLimits(run_s=3600)
    assert (command.attempts, command.instance_type) == (1, "m5.large")
    assert command.staging.checkpoints is None


def test_managed_spot_training_waits_and_keeps_checkpoints(world):
    command = world.submitted(**SPOT, RetryStrategy={"MaximumRetryAttempts": 4})
    environment = command.environment
    assert (environment.name, environment.provisioning) == ("windfall-training-spot", Provisioning.SPOT)
    assert command.limits == TimeLimits(run_s=3600, wait_s=7200)
    assert command.attempts == 5
    assert command.staging.checkpoints == Checkpoints(
        "s3://bucket/checkpoints/first", "/opt/ml/checkpoints", publish=True
    )


def test_the_wait_for_capacity_is_bounded_for_accelerators_alone(world):
    condition = {"MaxRuntimeInSeconds": 60, "MaxPendingTimeInSeconds": 1800}
    assert world.submitted(StoppingCondition=condition).limits.pending_s is None
    gpu = {"InstanceType": "ml.p3.2xlarge", "InstanceCount": 1}
    limits = world.submitted(name="gpu", StoppingCondition=condition, ResourceConfig=gpu).limits
    assert limits.pending_s == 1800


def test_a_type_that_is_larger_than_this_host_gets_what_the_host_has_and_says_so(world):
    world.has_settings(machines=lambda: (Resources(4, 16384, 1),))
    command = world.submitted(ResourceConfig={"InstanceType": "ml.p3.16xlarge", "InstanceCount": 1})
    assert command.container.resources == Resources(4, 16384, 1)
    (transition,) = world.call("DescribeTrainingJob", TrainingJobName="first")["SecondaryStatusTransitions"]
    assert (
        "ml.p3.16xlarge asks for 8 GPUs, this host has 1; for 64 vCPUs, this host has 4"
        in (transition["StatusMessage"])
    )


def test_of_several_machines_the_one_counts_that_comes_nearest(world):
    world.has_settings(
        machines=lambda: (Resources(64, 262_144), Resources(8, 65_536, 4), Resources(4, 16_384, 4))
    )
    pair = {"InstanceType": "ml.p3.16xlarge", "InstanceCount": 2}
    assert world.submitted(ResourceConfig=pair).container.resources == Resources(8, 65_536, 4), (
        "they share none"
    )
    (transition,) = world.call("DescribeTrainingJob", TrainingJobName="first")["SecondaryStatusTransitions"]
    assert "8 GPUs, the machine that comes nearest has 4" in transition["StatusMessage"]
    fits = {"InstanceType": "ml.m5.4xlarge", "InstanceCount": 9}
    assert world.submitted(name="fits", ResourceConfig=fits).container.resources == Resources(16, 65_536)


def test_engines_without_machines_of_their_own_have_instances_of_the_very_type(world):
    world.has_settings(engine="simulated")
    command = world.submitted(ResourceConfig={"InstanceType": "ml.p3.16xlarge", "InstanceCount": 1})
    assert command.container.resources.gpus == 8
    assert (command.instance_type, command.environment.engine) == ("p3.16xlarge", "simulated")


@pytest.mark.parametrize(
    ("wanted", "near"),
    [
        ("ml.p3.3xlarge", "p3.2xlarge"),
        ("ml.p3", "ml.p3.2xlarge"),
        ("ml.m5.gigantic", "m5.large"),
        ("nonsense", "windfall catalog"),
    ],
)
def test_an_unknown_type_is_refused_with_near_ones(world, wanted, near):
    text = world.refused(
        "CreateTrainingJob", **a_request(ResourceConfig={"InstanceType": wanted, "InstanceCount": 1})
    )
    assert text.startswith(f"InstanceType: {wanted} ")
    assert near in text


def test_script_mode_runs_the_script_with_the_python_of_this_host(world):
    world.has_settings(python="/opt/venv/bin/python")
    command = world.submitted(**SCRIPT, InputDataConfig=[a_channel("train")], Environment={"MINE": "1"})
    program = host_command(command.container, [])
    assert program.argv == (
        "/opt/venv/bin/python",
        "train.py",
        *("-b", "text", "--epochs", "3", "--learning-rate", "0.1"),
    )
    assert program.directory == "/opt/ml/code"
    (archive,) = command.staging.archives
    assert (archive.uri, archive.path) == ("s3://bucket/code/sourcedir.tar.gz", "/opt/ml/code")
    environment = program.environment
    assert (environment["MINE"], environment["PYTHONUNBUFFERED"]) == ("1", "1")
    assert environment["SM_CHANNEL_TRAIN"] == "/opt/ml/input/data/train"
    assert environment["TRAINING_JOB_NAME"] == "first"
    assert environment["TRAINING_JOB_ARN"] == f"{ARN}/first"
    assert environment["AWS_REGION"] == "eu-west-1"


def test_in_a_container_the_image_is_told_to_train_and_its_own_toolkit_does_the_rest(world):
    container = world.submitted(**SCRIPT, Environment={"MINE": "1"}).container
    run = container_run(container, None)
    assert (run.image, run.entrypoint, run.command) == (IMAGE, None, ("train",))
    assert run.options.network is None
    assert container.environment["MINE"] == "1"
    # The toolkit derives these from /opt/ml/input/config, as it does on SageMaker.
    assert not [name for name in container.environment if name.startswith("SM_")]


def test_with_network_isolation_the_code_comes_through_a_channel_and_no_credentials_do(world):
    code = "/opt/ml/input/data/code/sourcedir.tar.gz"
    command = world.submitted(
        HyperParameters={"sagemaker_program": '"train.py"', "sagemaker_submit_directory": json.dumps(code)},
        InputDataConfig=[a_channel("code", source={"S3Uri": "s3://bucket/x/sourcedir.tar.gz"})],
        EnableNetworkIsolation=True,
    )
    assert command.staging.archives[0].uri == "s3://bucket/x/sourcedir.tar.gz"
    assert not command.staging.shares_object_credentials
    assert command.container.options.network == "none"
    command = world.submitted(
        name="prefix",
        HyperParameters={"sagemaker_program": '"train.py"', "sagemaker_submit_directory": json.dumps(code)},
        InputDataConfig=[a_channel("code", source={"S3Uri": "s3://bucket/x/"})],
    )
    assert command.staging.archives[0].uri == "s3://bucket/x/sourcedir.tar.gz"
    assert command.staging.shares_object_credentials


def test_an_image_that_is_mapped_runs_by_its_mapping(world):
    world.maps(f"{IMAGE[:-1]}*", "run-image")
    assert world.submitted().container.command == ("train",)
    algorithm = {
        "TrainingImage": IMAGE,
        "TrainingInputMode": "File",
        "ContainerArguments": ["serve", "--fast"],
    }
    command = world.submitted(name="words", AlgorithmSpecification=algorithm)
    assert command.container.command == ("serve", "--fast")
    # The image's own toolkit looks after the script.
    container = world.submitted(name="script", **SCRIPT).container
    assert host_command(container, [ImageMapping("*", "/srv", ("run-image",))]).argv == ("run-image", "train")


def test_an_entry_point_of_its_own_is_run(world):
    algorithm = {
        "TrainingImage": IMAGE,
        "TrainingInputMode": "File",
        "ContainerEntrypoint": ["/bin/bash", "-c"],
        "ContainerArguments": ["echo hello"],
    }
    container = world.submitted(AlgorithmSpecification=algorithm).container
    assert (container.entrypoint, container.command) == (("/bin/bash", "-c"), ("echo hello",))
    assert host_command(container, []).argv == ("/bin/bash", "-c", "echo hello")
    assert host_command(container, [ImageMapping("*", "/srv", ("own",))]).argv[0] == "/bin/bash"


@pytest.mark.parametrize(
    "hyperparameters",
    [
        {},
        {"sagemaker_program": "train.py"},
        {"sagemaker_program": "train.py", "sagemaker_submit_directory": "/opt/ml/code"},
    ],
)
def test_nothing_stands_in_for_an_image_whose_code_is_inside(world, hyperparameters):
    container = world.submitted(HyperParameters=hyperparameters).container
    assert host_command(container, []) is None
    assert container_run(container, None).command == ("train",)


def test_channels_and_outputs_are_staged(world):
    command = world.submitted(
        InputDataConfig=[
            a_channel("plain"),
            a_channel(
                "piped",
                InputMode="Pipe",
                CompressionType="Gzip",
                RecordWrapperType="RecordIO",
                ShuffleConfig={"Seed": 7},
                source={"S3DataType": "AugmentedManifestFile", "AttributeNames": ["a", "b"]},
            ),
            a_channel("fast", InputMode="FastFile", ContentType="text/csv"),
        ],
        OutputDataConfig={"S3OutputPath": "s3://bucket/out/", "CompressionType": "GZIP"},
    )
    assert command.staging.channels == (
        Channel("plain", "s3://bucket/plain"),
        Channel(
            "piped", "s3://bucket/piped", "Pipe", "AugmentedManifestFile", "Gzip", "RecordIO", 7, ("a", "b")
        ),
        Channel("fast", "s3://bucket/fast", "FastFile"),
    )
    assert command.staging.outputs == (
        Output("/opt/ml/model", "s3://bucket/out/first/output/model.tar.gz"),
        Output("/opt/ml/output/data", "s3://bucket/out/first/output/output.tar.gz"),
    )
    assert command.staging.failure_path == "/opt/ml/output/failure"
    assert command.staging.wants_ml_root
    assert {"/opt/ml/model", "/opt/ml/output/data", "/opt/ml/input/data"} <= set(command.staging.directories)


def test_without_compression_outputs_are_plain_files(world):
    output = {"S3OutputPath": "s3://bucket/out", "CompressionType": "NONE"}
    command = world.submitted(OutputDataConfig=output)
    assert [(it.uri, it.archived) for it in command.staging.outputs] == [
        ("s3://bucket/out/first/output/model", False),
        ("s3://bucket/out/first/output/data", False),
    ]
    described = world.call("DescribeTrainingJob", TrainingJobName="first")
    assert described["ModelArtifacts"]["S3ModelArtifacts"] == "s3://bucket/out/first/output/model/"


def test_buckets_can_be_directories_where_there_is_no_s3(world):
    world.has_settings(storage=StorageLayout(bucket_home="file:///srv/objects"))
    world.tenant = "team-a"
    command = world.submitted(**SCRIPT, **SPOT, InputDataConfig=[a_channel("train")])
    staging = command.staging
    assert staging.checkpoints.uri == "file:///srv/objects/tenants/team-a/buckets/bucket/checkpoints/first"
    assert staging.channels[0].uri == "file:///srv/objects/tenants/team-a/buckets/bucket/train"
    assert (
        staging.archives[0].uri == "file:///srv/objects/tenants/team-a/buckets/bucket/code/sourcedir.tar.gz"
    )
    assert (
        staging.outputs[0].uri
        == "file:///srv/objects/tenants/team-a/buckets/bucket/out/first/output/model.tar.gz"
    )
    described = world.call("DescribeTrainingJob", TrainingJobName="first")
    assert described["ModelArtifacts"]["S3ModelArtifacts"] == "s3://bucket/out/first/output/model.tar.gz"


def test_configuration_files_are_those_of_the_contract(world):
    command = world.submitted(
        HyperParameters={"lr": "0.1"},
        InputDataConfig=[a_channel("train", InputMode="FastFile", ContentType="text/csv")],
        CheckpointConfig={"S3Uri": "s3://bucket/c", "LocalPath": "/data/ckpt/"},
    )
    files = {it.path: json.loads(it.content) for it in command.staging.files}
    config = "/opt/ml/input/config"
    assert files[f"{config}/hyperparameters.json"] == {"lr": "0.1"}
    assert files[f"{config}/inputdataconfig.json"] == {
        "train": {
            "ContentType": "text/csv",
            "TrainingInputMode": "File",
            "S3DistributionType": "FullyReplicated",
            "RecordWrapperType": "None",
        }
    }
    resources = files[f"{config}/resourceconfig.json"]
    assert (resources["current_host"], resources["hosts"]) == ("algo-1", ["algo-1"])
    assert resources["current_instance_type"] == "ml.m5.large"
    assert resources["current_group_name"] == "homogeneousCluster"
    assert files[f"{config}/checkpointconfig.json"] == {"LocalPath": "/data/ckpt"}
    assert command.staging.checkpoints.path == "/data/ckpt"
    assert f"{config}/checkpointconfig.json" not in [
        it.path for it in world.submitted(name="none").staging.files
    ]


REFUSALS = [
    (
        {"StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60}},
        "Invalid MaxWaitTimeInSeconds. It is only supported when EnableManagedSpotTraining is set to true",
    ),
    (
        {"EnableManagedSpotTraining": True},
        "It must be present and be greater than or equal to MaxRuntimeInSeconds",
    ),
    (
        {
            "EnableManagedSpotTraining": True,
            "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 59},
        },
        "It must be present and be greater than or equal to MaxRuntimeInSeconds",
    ),
    ({"StoppingCondition": {"MaxRuntimeInSeconds": 3_000_000}}, "28 days"),
    ({"StoppingCondition": None}, "Value null at 'stoppingCondition'"),
    ({"ResourceConfig": None, "AlgorithmSpecification": None}, "2 validation errors detected"),
    ({"ResourceConfig": {"InstanceCount": 1}}, "resourceConfig.instanceType"),
    ({"ResourceConfig": {"InstanceType": "ml.m5.large"}}, "resourceConfig.instanceCount"),
    ({"ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 0}}, "must be at least 1"),
    ({"ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1001}}, "at most 1000 instances"),
    (
        {"ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceGroups": [a_group("a")]}},
        "drop InstanceType",
    ),
    ({"ResourceConfig": {"InstanceGroups": [a_group("a"), a_group("a")]}}, "name a more than once"),
    ({"ResourceConfig": {"InstanceGroups": [a_group("a", count=0)]}}, "must be at least 1, got 0"),
    (
        {
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2},
            "EnableNetworkIsolation": True,
        },
        "EnableNetworkIsolation with several instances",
    ),
    (
        {"InputDataConfig": [a_channel("a", source={"InstanceGroupNames": ["there"]})]},
        "has there, which is not one of the job's instance groups: homogeneousCluster",
    ),
    ({"ResourceConfig": {"InstancePreferences": [{"InstanceType": "ml.m5.large"}]}}, "InstancePreferences"),
    (
        {"AlgorithmSpecification": {"AlgorithmName": "forest", "TrainingInputMode": "File"}},
        "name a TrainingImage",
    ),
    ({"AlgorithmSpecification": {"TrainingInputMode": "File"}}, "must have a TrainingImage"),
    ({"InputDataConfig": [a_channel("a"), a_channel("a")]}, "channel a more than once"),
    ({"InputDataConfig": [a_channel("..")]}, "cannot be a directory's name"),
    ({"InputDataConfig": [{"ChannelName": "a", "DataSource": {}}]}, "must have an S3DataSource"),
    (
        {
            "InputDataConfig": [
                {
                    "ChannelName": "a",
                    "DataSource": {
                        "FileSystemDataSource": {
                            "FileSystemId": "fs-12345678901",
                            "FileSystemAccessMode": "ro",
                            "FileSystemType": "EFS",
                            "DirectoryPath": "/x",
                        }
                    },
                }
            ]
        },
        "put the data into S3",
    ),
    (
        {"InputDataConfig": [a_channel("a", InputMode="FastFile", source={"S3DataType": "ManifestFile"})]},
        "FastFile mode needs S3DataType S3Prefix",
    ),
    ({"InputDataConfig": [a_channel("a", source={"S3DataType": "AugmentedManifestFile"})]}, "Pipe mode"),
    (
        {
            "InputDataConfig": [
                a_channel("a", InputMode="Pipe", source={"S3DataType": "AugmentedManifestFile"})
            ]
        },
        "needs AttributeNames",
    ),
    ({"InputDataConfig": [a_channel("a", CompressionType="Gzip")]}, "only supported in Pipe mode"),
    ({"InputDataConfig": [a_channel("a", RecordWrapperType="RecordIO")]}, "only supported in Pipe mode"),
    ({"InputDataConfig": [a_channel("a", source={"S3DataType": "Converse"})]}, "Converse"),
    ({"InputDataConfig": [a_channel("a", source={"S3Uri": "https://s3/b/k"})]}, "must begin with s3://"),
    ({"OutputDataConfig": {"S3OutputPath": "https://s3/b/k"}}, "must begin with s3://"),
    ({"CheckpointConfig": {"S3Uri": "https://s3/b/k"}}, "must begin with s3://"),
    ({"CheckpointConfig": {"S3Uri": "s3://b/k", "LocalPath": "relative"}}, "absolute path"),
    ({"CheckpointConfig": {"S3Uri": "s3://b/k", "LocalPath": "/opt/../etc"}}, "without '..'"),
    ({"HyperParameters": {"sagemaker_program": "../../etc/passwd"}}, "inside the source directory"),
    ({"HyperParameters": {"sagemaker_program": "-c"}}, "inside the source directory"),
    (
        {"HyperParameters": {"sagemaker_program": "a.py", "sagemaker_submit_directory": "3"}},
        "must be a location",
    ),
    ({"Tags": [{"Key": "aws:x", "Value": "y"}]}, "reserved"),
    ({"Tags": [{"Key": "windfall:gpu-shares", "Value": "0.5"}]}, "did you mean windfall:gpu-share?"),
    ({"Tags": [{"Key": "windfall:x", "Value": "y"}]}, "tags of your own begin with something else"),
    ({"TrainingJobName": "-no-name"}, "regular expression pattern"),
    ({"RoleArn": "short"}, "roleArn"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSALS, ids=[words[:40] for _, words in REFUSALS])
def test_what_cannot_be_carried_out_is_refused_in_words_that_help(world, changes, words):
    assert words in world.refused("CreateTrainingJob", **a_request(**changes))


@pytest.mark.parametrize(
    ("regex", "words"), [("(", "cannot be read"), ("loss=.*", "needs a group"), ("x" * 501, "length")]
)
def test_a_metric_s_pattern_must_be_one(world, regex, words):
    algorithm = {
        "TrainingImage": IMAGE,
        "TrainingInputMode": "File",
        "MetricDefinitions": [{"Name": "loss", "Regex": regex}],
    }
    assert words in world.refused("CreateTrainingJob", **a_request(AlgorithmSpecification=algorithm))


def test_a_name_is_taken_as_long_as_its_job_is_there(world):
    world.gate.keep(a_training_job("first", SUCCEEDED, stopped_at=NOW))
    text = world.refused("CreateTrainingJob", "ResourceInUse", **a_request())
    assert text == (
        "Training job names must be unique within an AWS account and region, "
        f"and a training job with this name already exists ({ARN}/first)"
    )
    with pytest.raises(ClientError) as caught:
        world.client().create_training_job(**a_request())
    assert caught.value.response["Error"]["Code"] == "ResourceInUse"
    world.client().delete_training_job(TrainingJobName="first")
    assert world.submitted().name == "first"


@pytest.mark.parametrize(
    ("refusal", "code"), [(Conflict("it lives"), "ResourceInUse"), (Invalid("no"), "ValidationException")]
)
def test_the_core_s_refusal_is_told_in_its_own_words(world, refusal, code):
    world.gate.refusal = refusal
    assert world.refused("CreateTrainingJob", code, **a_request()) == str(refusal)


def of_group(command, number: int):
    """What one host of a submitted cluster runs, and what is brought for it."""
    group = command.nodes.group(number)
    files = {file.path.rpartition("/")[2]: json.loads(file.content) for file in group.staging.files}
    return group, files


def test_several_instances_are_equal_nodes_that_know_one_another_by_name(world):
    world.has_settings(machines=lambda: (Resources(64, 262_144),))
    command = world.submitted(ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 11}, **SCRIPT)
    nodes = command.nodes
    assert (nodes.count, nodes.main, nodes.peers, nodes.name(10)) == (11, 0, True, "algo-11")
    main, files = of_group(command, 0)
    assert main.container == command.container
    assert main.staging == command.staging
    # As SageMaker sorts them: by letters.
    hosts = ["algo-1", "algo-10", "algo-11", *(f"algo-{number}" for number in range(2, 10))]
    assert files["resourceconfig.json"]["hosts"] == hosts
    assert files["resourceconfig.json"]["current_host"] == "algo-1"
    other, files = of_group(command, 7)
    assert files["resourceconfig.json"]["current_host"] == OWN_NAME
    told = other.container.on_host.environment
    assert json.loads(told["SM_HOSTS"]) == hosts
    assert told["SM_CURRENT_HOST"] == OWN_NAME
    training = json.loads(told["SM_TRAINING_ENV"])
    assert (training["is_master"], training["master_hostname"]) == (False, "algo-1")
    assert json.loads(main.container.on_host.environment["SM_TRAINING_ENV"])["is_master"] is True
    # Eleven times two vCPUs fit here.
    assert other.container.resources == Resources(2, 8192)


def test_groups_have_types_names_and_channels_of_their_own(world):
    channels = [
        a_channel("everywhere"),
        a_channel("parts", source={"S3DataDistributionType": "ShardedByS3Key"}),
        a_channel(
            "workers",
            source={"S3DataDistributionType": "ShardedByS3Key", "InstanceGroupNames": ["workers"]},
        ),
    ]
    groups = [a_group("leader", "ml.c5.xlarge"), a_group("workers", "ml.m5.large", count=2)]
    world.has_settings(machines=lambda: (Resources(64, 262_144),))
    command = world.submitted(ResourceConfig={"InstanceGroups": groups}, InputDataConfig=channels, **SCRIPT)
    leader, told = of_group(command, 0)
    assert (leader.instance_type, leader.container.resources.vcpus) == ("c5.xlarge", 4)
    assert set(told["inputdataconfig.json"]) == {"everywhere", "parts"}
    assert told["resourceconfig.json"]["current_group_name"] == "leader"
    worker, told = of_group(command, 2)
    assert (worker.first, worker.last, worker.instance_type) == (1, 2, "m5.large")
    assert told["resourceconfig.json"]["instance_groups"][1] == {
        "instance_group_name": "workers",
        "instance_type": "ml.m5.large",
        "hosts": ["algo-2", "algo-3"],
    }
    everywhere, parts, workers = worker.staging.channels
    assert (everywhere.divided_among, parts.divided_among) == ((), (0, 1, 2))
    assert workers.divided_among == (1, 2)
    told = worker.container.on_host.environment
    assert (told["SM_IS_HETERO"], told["SM_CURRENT_INSTANCE_GROUP"]) == ("true", "workers")
    assert json.loads(told["SM_CURRENT_INSTANCE_GROUP_HOSTS"]) == ["algo-2", "algo-3"]


def test_one_instance_in_a_group_is_a_job_like_any_other(world):
    command = world.submitted(ResourceConfig={"InstanceGroups": [a_group("only", "ml.m5.large")]})
    assert command.nodes is None
    config = next(file for file in command.staging.files if file.path.endswith("resourceconfig.json"))
    assert json.loads(config.content)["current_group_name"] == "only"


def test_a_host_that_is_too_small_for_all_instances_is_divided(world):
    world.has_settings(machines=lambda: (Resources(8, 30_000, 1),))
    command = world.submitted(ResourceConfig={"InstanceType": "ml.p3.2xlarge", "InstanceCount": 3})
    given = command.nodes.group(1).container.resources
    assert (given.memory_mib, given.gpus) == (10_000, 0)
    assert 3 * given.vcpus <= 8 < 3 * given.vcpus + 0.01
    note = json.loads(command.document)["capacity_note"]
    assert note.startswith(
        "3 instances share this host, which has 8 vCPUs, 29.3 GiB of memory and 1 GPU: each"
    )
