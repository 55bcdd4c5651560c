"""What the tests of containers share: a daemon that has a real Docker engine, and jobs in images of it."""

from __future__ import annotations

from typing import Any

from tests.acceptance.daemon import RunningWindfall, a_definition
from tests.docker_engine import IMAGE, RunningEngine

OPTIONS = ("--vcpus", "8", "--memory-mib", "16384", "--gpus", "none")


def with_engine(engine: RunningEngine, *options: str) -> RunningWindfall:
    """A daemon that has not been started, with a real engine to run its containers."""
    running = RunningWindfall(*OPTIONS, "--container-socket", str(engine.socket), *options)
    running.extra_environment["WINDFALL_RUNTIME"] = "auto"
    return running


def a_boxed_definition(batch: Any, name: str, script: str, image: str = IMAGE, **properties: Any) -> str:
    """Register a definition that runs a shell script in a container; the answer is its ARN."""
    return a_definition(batch, name, "sh", "-c", script, container={"image": image, **properties})


def submitted(batch: Any, definition: str, queue: str = "q", **more: Any) -> str:
    """Submit a job of a definition; the answer is its id."""
    answer = batch.submit_job(jobName=definition, jobQueue=queue, jobDefinition=definition, **more)
    return str(answer["jobId"])


def log_of(running: RunningWindfall, job_id: str) -> str:
    """What a job has said in its latest attempt."""
    return running.windfall("logs", job_id, check=False).stdout
