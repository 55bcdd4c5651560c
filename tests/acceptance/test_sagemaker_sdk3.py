"""The SageMaker Python SDK (v3, what `pip install sagemaker` gives), unmodified: ModelTrainer with code of its own.

The SDK is large and wants versions of its own, so that it may live in another Python: SAGEMAKER_SDK3_PYTHON names it.
"""

from __future__ import annotations

import getpass
import os
import subprocess

import pytest

from windfall.daemon.seaweedfs import S3ServerError, find_program

PROGRAM = """
import sys
from sagemaker.core.helper.session_helper import Session
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, OutputDataConfig, SourceCode

trainer = ModelTrainer(
    sagemaker_session=Session(default_bucket="windfall"),
    training_image="pytorch",
    role="arn:aws:iam::123456789012:role/Training",
    source_code=SourceCode(source_dir=sys.argv[1], command="python3 train.py"),
    compute=Compute(instance_type="ml.m5.large", instance_count=1, volume_size_in_gb=1),
    output_data_config=OutputDataConfig(s3_output_path="s3://windfall/models"),
    base_job_name="by-sdk3",
)
trainer.train(wait=True, logs=False)
"""


def test_a_model_trainer_trains(fresh, require, tmp_path):
    python = os.environ.get("SAGEMAKER_SDK3_PYTHON")
    if python is None:
        pytest.skip(
            "version 3 of the SageMaker SDK is not installed; name a Python that has it in SAGEMAKER_SDK3_PYTHON"
        )
    try:
        find_program()
    except S3ServerError as error:
        require(False, str(error))
    options = ("--gpus", "none", "--runtime", "process", "--job-user", getpass.getuser())
    windfall = fresh(*options, "--s3", "--s3-port", "0")
    for name in ("code", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "code" / "train.py").write_text('print("trained")\n')
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [python, tmp_path / "program.py", tmp_path / "code"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), **windfall.environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (job,) = windfall.client("sagemaker").list_training_jobs()["TrainingJobSummaries"]
    assert job["TrainingJobName"].startswith("by-sdk3")
    assert job["TrainingJobStatus"] == "Completed"
