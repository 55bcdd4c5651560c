"""A profile that leads real AWS clients here while the user's own access stays as it was."""

from __future__ import annotations

import json
import sys

from tests.acceptance.daemon import a_queue

PYTHON = "import boto3; print(boto3.client('batch').describe_job_queues()['jobQueues'][0]['jobQueueName'])"


def test_aws_and_boto3_use_windfall_by_profile_and_nothing_else_changes(fresh, tmp_path):
    windfall = fresh("--gpus", "none")
    a_queue(windfall)
    own = "[default]\naws_access_key_id = AKIAMINE\naws_secret_access_key = mine\n"
    (tmp_path / "credentials").write_text(own)
    files = {
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
    }
    windfall.extra_environment = files
    windfall.windfall("env", "--profile", "windfall")

    def typed(command: str) -> str:
        """What a shell prints in which nothing but these files is known."""
        clean = "unset ${!AWS_*}; " + "".join(f"export {name}={value}; " for name, value in files.items())
        done = windfall.shell(clean + "export AWS_PAGER= AWS_EC2_METADATA_DISABLED=true; " + command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    queues = json.loads(typed("AWS_PROFILE=windfall aws batch describe-job-queues"))["jobQueues"]
    assert [queue["jobQueueName"] for queue in queues] == ["q"]
    assert typed(f'AWS_PROFILE=windfall {sys.executable} -c "{PYTHON}"').strip() == "q"
    assert "WNDF" in typed("aws --profile windfall sts get-caller-identity")
    listed = typed("aws configure list")
    assert "MINE" in listed
    assert "WNDF" not in listed
    windfall.windfall("env", "--profile", "windfall", "--remove")
    assert (tmp_path / "credentials").read_text() == own
    assert not (tmp_path / "config").exists()
