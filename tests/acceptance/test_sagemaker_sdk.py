"""The SageMaker Python SDK (v2), unmodified: Estimator.fit() on spot capacity that is taken away meanwhile.

The SDK is large and wants versions of its own, so that it may live in another Python: SAGEMAKER_SDK_PYTHON names it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.daemon import RunningWindfall
from tests.acceptance.test_sagemaker_training import Training, transitions
from tests.waiting import wait_until
from windfall.daemon.seaweedfs import S3ServerError, find_program

SCRIPT = Path(__file__).with_name("sagemaker_script.py")
#: What a user of the SDK writes: the same as on AWS, but for the session's settings.
PROGRAM = """
import sys
from sagemaker import Session
from sagemaker.estimator import Estimator
from sagemaker.inputs import TrainingInput

# The SDK asks for encryption by AWS KMS when it uploads code, which no S3 outside AWS has.
session = Session(default_bucket="windfall")
estimator = Estimator(
    image_uri="123456789012.dkr.ecr.us-east-1.amazonaws.com/pytorch:2",
    role="arn:aws:iam::123456789012:role/Training",
    instance_count=1,
    instance_type="ml.p3.2xlarge",
    entry_point="sagemaker_script.py",
    source_dir=sys.argv[1],
    output_path="s3://windfall/sdk-out",
    hyperparameters={"steps": 80, "pause": 0.1},
    metric_definitions=[{"Name": "loss", "Regex": "loss=(.*?);"}],
    use_spot_instances=True,
    max_run=600,
    max_wait=1200,
    checkpoint_s3_uri="s3://windfall/sdk-checkpoints",
    sagemaker_session=session,
    tags=[{"Key": "team", "Value": "vision"}],
)
data = session.upload_data(sys.argv[2], key_prefix="sdk-data")
estimator.fit({"training": TrainingInput(data)}, job_name="by-sdk")
print("MODEL", estimator.model_data)
print("DESCRIBED", estimator.latest_training_job.describe()["TrainingJobStatus"])
"""


def sdk_python() -> str:
    """A Python that has the SDK, or a reason to skip."""
    told = os.environ.get("SAGEMAKER_SDK_PYTHON")
    if told is None and importlib.util.find_spec("sagemaker") is None:
        pytest.skip("the SageMaker SDK is not installed; name a Python that has it in SAGEMAKER_SDK_PYTHON")
    return told or sys.executable


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with the user's code and data."""
    made = Path(tempfile.mkdtemp(prefix="sdk-"))
    for name in ("code", "data", "home"):
        (made / name).mkdir()
    shutil.copy(SCRIPT, made / "code")
    (made / "data" / "numbers.txt").write_text("1\n2\n3\n")
    (made / "program.py").write_text(PROGRAM)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def training() -> Iterator[Training]:
    try:
        find_program()
    except S3ServerError as error:
        pytest.skip(str(error))
    running = RunningWindfall("--vcpus", "4", "--memory-mib", "16384", "--s3", "--s3-port", "0")
    try:
        yield Training(running.up())
    finally:
        running.close()


@pytest.mark.long
def test_fit_survives_an_interruption(training, place):
    python = sdk_python()
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        **training.environment,
        "HOME": str(place / "home"),
    }
    command = [python, str(place / "program.py"), str(place / "code"), str(place / "data")]
    with (place / "output").open("w+") as output:
        user = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=place / "home"
        )
        try:
            wait_until(
                lambda: any("step 8 " in line for line in training.log("by-sdk")) or user.poll() is not None,
                "the SDK's job trains",
                deadline_s=200,
            )
            assert user.poll() is None, (place / "output").read_text()
            training.windfall.windfall("interrupt", "training-by-sdk", "--notice", "20")
            code = user.wait(170)
        finally:
            if user.poll() is None:
                user.kill()
                user.wait()
    printed = (place / "output").read_text()
    assert code == 0, printed
    for words in ("Training seconds:", "Billable seconds:", "Managed Spot Training savings: "):
        assert words in printed
    assert "step 8 loss=" in printed
    assert "DESCRIBED Completed" in printed
    found = training.describe("by-sdk")
    assert transitions(found).count("Interrupted") == 1
    uri = found["ModelArtifacts"]["S3ModelArtifacts"]
    assert f"MODEL {uri}" in printed
    model = json.loads(training.archive(uri)["model.json"])
    assert model["done"] == list(range(80))
    assert len(model["starts"]) == 2


@pytest.mark.long
def test_fit_runs_on_two_instances(training, place):
    python = sdk_python()
    shutil.copy(SCRIPT.with_name("sagemaker_gang_script.py"), place / "code/sagemaker_script.py")
    program = PROGRAM.replace("instance_count=1", "instance_count=2").replace('"steps": 80, "pause": 0.1', "")
    (place / "program.py").write_text(program.replace('"ml.p3.2xlarge"', '"ml.m5.large"'))
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        **training.environment,
        "HOME": str(place / "home"),
    }
    command = [python, str(place / "program.py"), str(place / "code"), str(place / "data")]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=place / "home", timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "DESCRIBED Completed" in done.stdout
    # It follows the log of every host.
    for host in ("algo-1", "algo-2"):
        assert f"{host} has ['numbers.txt'] and restored []; loss=12;" in done.stdout
    model = training.archive("s3://windfall/sdk-out/by-sdk/output/model.tar.gz")
    assert model["algo-2.txt"] == b"12 of algo-2"
