"""SageMaker training with an unmodified boto3 over a real daemon, a real S3 server and real processes."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.acceptance.daemon import RunningWindfall
from tests.conftest import require_part
from tests.waiting import wait_until
from windfall.daemon.seaweedfs import S3ServerError, find_program

SCRIPT = Path(__file__).with_name("sagemaker_script.py")
ROLE = "arn:aws:iam::123456789012:role/Training"
BUCKET = "windfall"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/not-here:1"
GROUP = "/aws/sagemaker/TrainingJobs"
TERMINAL = ("Completed", "Failed", "Stopped")


def packed_script() -> bytes:
    """The archive that clients make of a source directory."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(SCRIPT, "train.py")
    return packed.getvalue()


def a_request(name: str, hyperparameters: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """CreateTrainingJob for the script of these tests; None leaves a member out."""
    own = {key: json.dumps(value) for key, value in hyperparameters.items()}
    request: dict[str, Any] = {
        "TrainingJobName": name,
        "RoleArn": ROLE,
        "AlgorithmSpecification": {
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss=(.*?);"}],
        },
        "HyperParameters": {
            "sagemaker_program": '"train.py"',
            "sagemaker_submit_directory": f'"s3://{BUCKET}/code/sourcedir.tar.gz"',
            **own,
        },
        "InputDataConfig": [
            {
                "ChannelName": "training",
                "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/data/"}},
            }
        ],
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
    }
    request.update(changes)
    return {member: value for member, value in request.items() if value is not None}


class Training:
    """A daemon with an S3 server, clients that know what `windfall env` says, and code and data in a bucket."""

    def __init__(self, windfall: RunningWindfall) -> None:
        self.windfall = windfall
        self.environment = windfall.environment
        self.sagemaker, self.logs = windfall.client("sagemaker"), windfall.client("logs")
        self.s3 = boto3.client(
            "s3",
            endpoint_url=self.environment["AWS_ENDPOINT_URL_S3"],
            region_name=self.environment["AWS_REGION"],
            aws_access_key_id=self.environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.environment["AWS_SECRET_ACCESS_KEY"],
        )
        self.s3.put_object(Bucket=BUCKET, Key="code/sourcedir.tar.gz", Body=packed_script())
        self.s3.put_object(Bucket=BUCKET, Key="data/a.txt", Body=b"1\n2\n")
        self.s3.put_object(Bucket=BUCKET, Key="data/b.txt", Body=b"3\n")

    def request(self, name: str, hyperparameters: dict[str, Any], **changes: Any) -> dict[str, Any]:
        return a_request(name, hyperparameters, **changes)

    def describe(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.sagemaker.describe_training_job(TrainingJobName=name)
        return found

    def reaches(self, name: str, *statuses: str) -> dict[str, Any]:
        """Wait until the job's status or secondary status is one of these."""
        found: dict[str, Any] = {}

        def reached() -> bool:
            found.update(self.describe(name))
            return found["TrainingJobStatus"] in statuses or found["SecondaryStatus"] in statuses

        wait_until(reached, f"{name} in {statuses}", interval_s=0.1)
        return found

    def ends(self, name: str, status: str) -> dict[str, Any]:
        found = self.reaches(name, *TERMINAL)
        assert found["TrainingJobStatus"] == status, (found, self.log(name), self.windfall.log.read_text())
        return found

    def log(self, name: str) -> list[str]:
        """All lines of all its streams."""
        try:
            pages = self.logs.get_paginator("filter_log_events").paginate(
                logGroupName=GROUP, logStreamNamePrefix=f"{name}/"
            )
            return [event["message"] for page in pages for event in page["events"]]
        except self.logs.exceptions.ResourceNotFoundException:
            return []

    def archive(self, uri: str) -> dict[str, bytes]:
        """The files of an archive in the bucket."""
        body = self.s3.get_object(Bucket=BUCKET, Key=uri.removeprefix(f"s3://{BUCKET}/"))["Body"].read()
        with tarfile.open(fileobj=io.BytesIO(body)) as archive:
            return {
                member.name.removeprefix("./"): archive.extractfile(member).read()  # type: ignore[union-attr]  # isfile below
                for member in archive
                if member.isfile()
            }


@pytest.fixture(scope="module")
def training() -> Iterator[Training]:
    try:
        find_program()
    except S3ServerError as error:
        require_part(False, str(error))
    running = RunningWindfall(
        "--vcpus", "16", "--memory-mib", "65536", "--gpus", "simulated:1", "--s3", "--s3-port", "0"
    )
    try:
        yield Training(running.up())
    finally:
        running.close()


def spot(name: str) -> dict[str, Any]:
    return {
        "EnableManagedSpotTraining": True,
        "StoppingCondition": {"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 1200},
        "CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/checkpoints/{name}"},
    }


def transitions(found: dict[str, Any]) -> list[str]:
    return [it["Status"] for it in found["SecondaryStatusTransitions"]]


def test_spot_training_goes_on_where_it_was_interrupted(training):
    name = "interrupted"
    training.sagemaker.create_training_job(
        **training.request(name, {"steps": 60, "pause": 0.1}, **spot(name), Tags=[{"Key": "a", "Value": "b"}])
    )
    wait_until(lambda: any("step 8 " in line for line in training.log(name)), "it has begun")
    training.windfall.windfall("interrupt", f"training-{name}", "--notice", "20")
    found = training.ends(name, "Completed")
    assert transitions(found) == [
        *("Starting", "Downloading", "Training", "Interrupted"),
        *("Starting", "Downloading", "Training", "Uploading", "Completed"),
    ]
    assert all(it["StatusMessage"] and it["EndTime"] for it in found["SecondaryStatusTransitions"])
    files = training.archive(found["ModelArtifacts"]["S3ModelArtifacts"])
    model = json.loads(files["model.json"])
    # Every step was done once, and the second start began where the first had ended.
    assert model["done"] == list(range(60))
    assert model["sum"] == sum((1, 2, 3)[step % 3] for step in range(60))
    assert len(model["starts"]) == 2
    assert model["starts"][1] >= 8
    assert training.archive(f"s3://{BUCKET}/out/{name}/output/output.tar.gz") == {"note.txt": name.encode()}
    assert 1 <= found["BillableTimeInSeconds"] <= found["TrainingTimeInSeconds"]
    (metric,) = found["FinalMetricDataList"]
    assert (metric["MetricName"], metric["Value"]) == ("loss", pytest.approx(1 / 60, abs=1e-6))
    streams = training.logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{name}/")
    names = [stream["logStreamName"] for stream in streams["logStreams"]]
    assert len(names) == 2
    assert all(stream.startswith(f"{name}/algo-1-") for stream in names)
    # The checkpoint lies under its own name too, as SageMaker has it.
    kept = training.s3.get_object(Bucket=BUCKET, Key=f"checkpoints/{name}/state.json")["Body"].read()
    assert json.loads(kept)["done"] == list(range(60))


def test_script_mode_says_that_there_is_no_image(training):
    training.sagemaker.create_training_job(**training.request("plain", {"steps": 2}))
    found = training.ends("plain", "Completed")
    assert transitions(found) == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    messages = " ".join(it["StatusMessage"] for it in found["SecondaryStatusTransitions"])
    assert f"train.py runs with this host's Python (python3), without the image {IMAGE}" in messages
    assert found["TrainingTimeInSeconds"] == found["BillableTimeInSeconds"] >= 1


def test_a_failure_file_says_why(training):
    training.sagemaker.create_training_job(**training.request("fails", {"fail": "the data is upside down"}))
    found = training.ends("fails", "Failed")
    assert found["FailureReason"] == "AlgorithmError: the data is upside down, exit code: 3"
    assert transitions(found)[-1] == "Failed"


def test_what_the_log_shows_is_told_when_there_is_no_failure_file(training):
    training.sagemaker.create_training_job(**training.request("untold", {"needs": "no_such_module_here"}))
    found = training.ends("untold", "Failed")
    shown = "(missing-module: ModuleNotFoundError: No module named 'no_such_module_here')"
    assert found["FailureReason"] == f"AlgorithmError: , exit code: 1 {shown}"


def test_missing_data_is_the_client_s_error(training):
    request = training.request("no-data", {"steps": 2})
    request["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"] = f"s3://{BUCKET}/nothing-here/"
    training.sagemaker.create_training_job(**request)
    found = training.ends("no-data", "Failed")
    assert found["FailureReason"].startswith("ClientError: ")
    assert "nothing-here" in found["FailureReason"]


def test_a_bucket_that_is_not_there_is_told_before_the_training_starts(training):
    output = {"S3OutputPath": "s3://widnfall/models"}
    training.sagemaker.create_training_job(**training.request("typo", {"steps": 2}, OutputDataConfig=output))
    found = training.ends("typo", "Failed")
    assert found["FailureReason"].startswith("ClientError: ")
    assert "s3://widnfall/models" in found["FailureReason"]
    assert not any("step 0" in line for line in training.log("typo"))


def test_a_model_that_could_not_be_stored_fails_the_job_and_is_stored_when_it_can_be(training):
    training.s3.create_bucket(Bucket="short-lived")
    output = {"S3OutputPath": "s3://short-lived/models"}
    training.sagemaker.create_training_job(
        **training.request("unstored", {"steps": 30}, OutputDataConfig=output)
    )
    wait_until(lambda: any("step 0 " in line for line in training.log("unstored")), "it runs")
    training.s3.delete_bucket(Bucket="short-lived")
    found = training.ends("unstored", "Failed")
    assert found["FailureReason"].startswith("ClientError: Artifact upload failed: s3://short-lived/models")
    training.s3.create_bucket(Bucket="short-lived")

    def stored() -> set[str]:
        listed = training.s3.list_objects_v2(Bucket="short-lived").get("Contents", [])
        return {entry["Key"] for entry in listed}

    model = "models/unstored/output/model.tar.gz"
    wait_until(lambda: model in stored(), "the model is stored", interval_s=0.5)


def test_an_image_that_cannot_be_run_says_what_to_do(training):
    training.sagemaker.create_training_job(**training.request("no-image", {}, HyperParameters={}))
    found = training.ends("no-image", "Failed")
    assert found["FailureReason"].startswith("ClientError: ")
    assert "windfall image add" in found["FailureReason"]


def test_an_image_that_is_mapped_runs_by_its_mapping(training):
    training.windfall.windfall(
        "image", "add", "mapped:*", "--dir", "/", "--entrypoint", "/bin/sh -c 'echo $0 ran; cat $1' "
    )
    request = training.request("mapped", {}, HyperParameters={"lr": "0.1"})
    request["AlgorithmSpecification"]["TrainingImage"] = "mapped:1"
    training.sagemaker.create_training_job(**request)
    training.ends("mapped", "Completed")
    assert "train ran" in training.log("mapped")


def test_an_entry_point_of_its_own(training):
    request = training.request("entry", {}, HyperParameters={"lr": "0.1"})
    request["AlgorithmSpecification"]["ContainerEntrypoint"] = ["/bin/sh", "-c"]
    request["AlgorithmSpecification"]["ContainerArguments"] = [
        "cd ${SAGEMAKER_BASE_DIR:-/opt/ml} && cat input/config/hyperparameters.json input/data/training/b.txt"
    ]
    training.sagemaker.create_training_job(**request)
    training.ends("entry", "Completed")
    assert "".join(training.log("entry")) == '{"lr": "0.1"}3'


def test_pipe_mode_streams_the_channel(training):
    request = training.request("piped", {}, HyperParameters={})
    request["AlgorithmSpecification"]["TrainingInputMode"] = "Pipe"
    request["AlgorithmSpecification"]["ContainerEntrypoint"] = ["/bin/sh", "-c"]
    request["AlgorithmSpecification"]["ContainerArguments"] = [
        "cd ${SAGEMAKER_BASE_DIR:-/opt/ml}/input/data && cat training_0 && cat training_1"
    ]
    training.sagemaker.create_training_job(**request)
    training.ends("piped", "Completed")
    assert training.log("piped") == ["1", "2", "3"] * 2


def test_stopping_uploads_what_there_is(training):
    training.sagemaker.create_training_job(**training.request("stopped", {"steps": 5000}, **spot("stopped")))
    wait_until(lambda: any("step 3 " in line for line in training.log("stopped")), "it runs")
    training.sagemaker.stop_training_job(TrainingJobName="stopped")
    found = training.ends("stopped", "Stopped")
    assert transitions(found)[-2:] == ["Stopping", "Stopped"]
    training.archive(found["ModelArtifacts"]["S3ModelArtifacts"])
    with pytest.raises(ClientError, match="training job is in status Stopped"):
        training.sagemaker.stop_training_job(TrainingJobName="stopped")


def test_the_running_time_is_bounded(training):
    condition = {"MaxRuntimeInSeconds": 2}
    training.sagemaker.create_training_job(
        **training.request("bounded", {"steps": 5000}, StoppingCondition=condition)
    )
    found = training.ends("bounded", "Stopped")
    assert found["SecondaryStatus"] == "MaxRuntimeExceeded"
    assert transitions(found)[-2:] == ["Stopping", "MaxRuntimeExceeded"]


def test_listing_deleting_and_the_name_again(training):
    for number in range(5):
        request = training.request(f"listed-{number}", {}, HyperParameters={})
        training.sagemaker.create_training_job(**request)
    for number in range(5):
        training.ends(f"listed-{number}", "Failed")
    pages = training.sagemaker.get_paginator("list_training_jobs").paginate(
        NameContains="listed-", SortBy="Name", SortOrder="Descending", PaginationConfig={"PageSize": 2}
    )
    found = [[it["TrainingJobName"] for it in page["TrainingJobSummaries"]] for page in pages]
    assert found == [["listed-4", "listed-3"], ["listed-2", "listed-1"], ["listed-0"]]
    request = training.request("listed-0", {"steps": 1})
    with pytest.raises(training.sagemaker.exceptions.ResourceInUse):
        training.sagemaker.create_training_job(**request)
    training.sagemaker.delete_training_job(TrainingJobName="listed-0")
    with pytest.raises(ClientError, match="Requested resource not found"):
        training.describe("listed-0")
    training.sagemaker.create_training_job(**request)
    training.ends("listed-0", "Completed")


def test_tags_and_updates_of_a_job_that_runs(training):
    created = training.sagemaker.create_training_job(
        **training.request("tagged", {"steps": 5000}, Tags=[{"Key": "team", "Value": "vision"}])
    )
    arn = created["TrainingJobArn"]
    training.reaches("tagged", "Training")
    training.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "a", "Value": "b"}])
    training.sagemaker.delete_tags(ResourceArn=arn, TagKeys=["team"])
    assert training.sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "a", "Value": "b"}]
    training.sagemaker.update_training_job(
        TrainingJobName="tagged", RemoteDebugConfig={"EnableRemoteDebug": True}
    )
    assert training.describe("tagged")["RemoteDebugConfig"] == {"EnableRemoteDebug": True}
    with pytest.raises(training.sagemaker.exceptions.ResourceInUse):
        training.sagemaker.delete_training_job(TrainingJobName="tagged")
    training.sagemaker.stop_training_job(TrainingJobName="tagged")
    training.ends("tagged", "Stopped")


def test_the_aws_command_line_works_too(training):
    identity = training.windfall.aws("sts get-caller-identity")
    assert identity["Account"] == "123456789012"
    assert identity["Arn"].endswith(f"/{training.environment['AWS_ACCESS_KEY_ID']}")
    training.sagemaker.create_training_job(**training.request("by-cli", {"steps": 1}))
    training.windfall.shell("aws sagemaker wait training-job-completed-or-stopped --training-job-name by-cli")
    found = training.windfall.aws("sagemaker describe-training-job --training-job-name by-cli")
    assert found["TrainingJobName"] == "by-cli"
    listed = training.windfall.aws("sagemaker list-training-jobs --name-contains by-cli")
    assert [it["TrainingJobName"] for it in listed["TrainingJobSummaries"]] == ["by-cli"]


def test_a_simulated_market_and_buckets_that_are_directories():
    running = RunningWindfall("--vcpus", "8", "--memory-mib", "16384")
    running.extra_environment = {
        "WINDFALL_TRAINING_ENGINE": "simulated",
        "WINDFALL_SIMULATED_BOOT_S": "1",
        "WINDFALL_SIMULATED_MTBI_S": "1000000",
    }
    try:
        running.up()
        bucket = running.data / "objects" / "buckets" / BUCKET
        for key, content in {"code/sourcedir.tar.gz": packed_script(), "data/a.txt": b"1\n2\n3\n"}.items():
            (bucket / key).parent.mkdir(parents=True)
            (bucket / key).write_bytes(content)
        sagemaker = running.client("sagemaker")
        resources = {"InstanceType": "ml.p3.8xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1}
        request = a_request("market", {"steps": 20}, **spot("market"), ResourceConfig=resources)
        sagemaker.create_training_job(**request)

        def ended() -> dict[str, Any] | None:
            found: dict[str, Any] = sagemaker.describe_training_job(TrainingJobName="market")
            return found if found["TrainingJobStatus"] in TERMINAL else None

        found = wait_until(ended, "the job ends", interval_s=0.2)
        assert found["TrainingJobStatus"] == "Completed", (found, running.log.read_text())
        # The instance is of the very type, so that nothing is missing; and spot costs less.
        assert not any("asks for" in it["StatusMessage"] for it in found["SecondaryStatusTransitions"])
        assert found["BillableTimeInSeconds"] < found["TrainingTimeInSeconds"]
        assert (bucket / "out" / "market" / "output" / "model.tar.gz").is_file()
        assert json.loads((bucket / "checkpoints" / "market" / "state.json").read_text())["sum"] == 39
    finally:
        running.close()
