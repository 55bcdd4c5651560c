"""A daemon under attack: keys of every role and tenant, clients that hold them, and jobs that say what they found."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import boto3
from botocore.exceptions import ClientError

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue

QUEUE = "q"
Key = dict[str, str]


def refusal(call: Any, **members: Any) -> tuple[str, str]:
    """The code and text that a call is refused with; fails if it is answered."""
    try:
        answer = call(**members)
    except ClientError as error:
        return error.response["Error"]["Code"], error.response["Error"]["Message"]
    raise AssertionError(f"{members} was answered: {answer}")


@dataclass
class Attacked:
    """A running daemon with one queue, and the means of an attacker."""

    windfall: RunningWindfall
    is_root: bool
    _definitions: int = field(default=0, init=False)

    @cached_property
    def admin(self) -> Any:
        """The administrator's Batch client; makes the queue at its first use."""
        return a_queue(self.windfall, QUEUE)

    def key(self, role: str = "submit", tenant: str = "default", *more: str) -> Key:
        """A new key, as `windfall keys create` prints it."""
        printed = self.windfall.windfall("keys", "create", "--role", role, "--tenant", tenant, *more).stdout
        return dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)

    def revoke(self, key: Key) -> None:
        """Revoke a key."""
        self.windfall.windfall("keys", "revoke", key["AWS_ACCESS_KEY_ID"])

    def client(self, key: Key, service: str = "batch") -> Any:
        """A boto3 client with a key."""
        assert self.admin
        return boto3.client(
            service,
            endpoint_url=self.windfall.url,
            region_name="us-east-1",
            aws_access_key_id=key["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=key["AWS_SECRET_ACCESS_KEY"],
        )

    def submitted(self, batch: Any, script: str, **more: Any) -> str:
        """The id of a job of this caller that runs a shell script."""
        self._definitions += 1
        name = f"script-{self._definitions}"
        a_definition(batch, name, "sh", "-c", script, memory_mib=256)
        return str(batch.submit_job(jobName=name, jobQueue=QUEUE, jobDefinition=name, **more)["jobId"])

    def log(self, job_id: str) -> str:
        """What a job has written, all of it, when it has ended."""
        self.windfall.wait_for([job_id])
        return self.windfall.windfall("logs", "--raw", job_id).stdout

    def run(self, batch: Any, script: str, **more: Any) -> str:
        """What a script says that a caller's job runs."""
        return self.log(self.submitted(batch, script, **more))
