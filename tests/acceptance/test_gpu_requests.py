"""A real daemon with GPUs of several kinds from a file: jobs ask for a model, for memory, for a part, and for more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.waiting import wait_until
from windfall.agent.devices.readings import Reading, RecordedSet, write_set

Start = Callable[..., RunningWindfall]
SMALL = Reading("GPU-small", "NVIDIA T4", 15_360)
MIDDLE = Reading("GPU-middle", "NVIDIA A10G", 24_564)
LARGE = Reading("GPU-large", "NVIDIA H100", 81_559, sharing_note="MPS was not found")
#: Fails as PyTorch does on every GPU but the large one.
GREEDY = """
case "$CUDA_VISIBLE_DEVICES" in *large*) echo fits; exit 0;; esac
echo 'Traceback (most recent call last):' >&2
echo '  File "train.py", line 3, in <module>' >&2
echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.' >&2
exit 1
"""


@pytest.fixture
def windfall(fresh: Start, tmp_path: Path) -> RunningWindfall:
    path = tmp_path / "gpus.json"
    write_set(str(path), RecordedSet([LARGE, SMALL, MIDDLE]))
    return fresh("--vcpus", "8", "--memory-mib", "4096", "--gpus", f"recorded:{path}")


def submit(batch: Any, definition: str, **tags: str) -> str:
    named = {f"windfall:{name.replace('_', '-')}": value for name, value in tags.items()}
    return str(
        batch.submit_job(jobName=definition, jobQueue="q", jobDefinition=definition, tags=named)["jobId"]
    )


def visible(windfall: RunningWindfall, job_id: str) -> str:
    return windfall.windfall("logs", job_id).stdout.strip()


def test_models_memory_and_the_smallest_first(windfall: RunningWindfall):
    batch = a_queue(windfall)
    a_definition(batch, "look", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; sleep 1", gpus=1)
    wants = [{}, {"gpu_model": "h100"}, {"gpu_memory_gib": "20"}]
    jobs = [submit(batch, "look", **tags) for tags in wants]
    described = windfall.wait_for(jobs)
    assert {job["status"] for job in described} == {"SUCCEEDED"}
    assert [visible(windfall, job) for job in jobs] == ["GPU-small", "GPU-large", "GPU-middle"]


def test_a_kind_that_is_not_there_is_explained(windfall: RunningWindfall):
    batch = a_queue(windfall)
    a_definition(batch, "look", "true", gpus=1)
    job = submit(batch, "look", gpu_model="B200")

    def told() -> str:
        return windfall.windfall("why", job).stdout

    wait_until(lambda: "no GPU of model B200" in told(), "the reason why it waits")
    assert "1 x NVIDIA T4 (15 GiB), 1 x NVIDIA A10G (24 GiB), 1 x NVIDIA H100 (79.6 GiB)" in told()
    assert "without windfall:gpu-model" in told()


def test_parts_of_one_gpu_run_beside_each_other_and_the_rest_waits(windfall: RunningWindfall):
    batch = a_queue(windfall)
    a_definition(
        batch, "hold", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES $WINDFALL_GPU_SHARE; sleep 300", gpus=1
    )
    jobs = [submit(batch, "hold", gpu_share=share, gpu_model="T4") for share in ("0.5", "0.5", "0.25")]
    windfall.wait_for(jobs[:2], "RUNNING")
    gpus = {gpu["id"]: gpu for gpu in json.loads(windfall.windfall("gpus", "--json").stdout)["gpus"]}
    assert gpus["GPU-middle"]["heldBy"] is None
    wait_until(lambda: visible(windfall, jobs[1]) != "", "the second log")
    assert [visible(windfall, job) for job in jobs[:2]] == ["GPU-small 0.5", "GPU-small 0.5"]
    assert "needs 0.25 GPUs of model T4, 0 of 1 are free" in windfall.windfall("why", jobs[2]).stdout
    batch.terminate_job(jobId=jobs[0], reason="enough")
    windfall.wait_for([jobs[2]], "RUNNING")


def test_what_cannot_be_is_refused_as_aws_refuses(windfall: RunningWindfall):
    batch = a_queue(windfall)
    a_definition(batch, "two", "true", gpus=2)
    with pytest.raises(ClientError, match="is a part of one GPU, and the job asks for 2") as refused:
        submit(batch, "two", gpu_share="0.5")
    assert refused.value.response["Error"]["Code"] == "ClientException"
    done = windfall.windfall("run", "--gpu-share", "0.5", "--gpus", "2", "--", "true", check=False)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr


def test_a_job_that_runs_out_of_gpu_memory_is_tried_on_larger_ones(windfall: RunningWindfall):
    batch = a_queue(windfall)
    a_definition(batch, "greedy", "sh", "-c", GREEDY, gpus=1)
    job = submit(batch, "greedy", on_gpu_oom="larger")
    [described] = windfall.wait_for([job])
    assert described["status"] == "SUCCEEDED"
    assert [attempt["container"].get("exitCode") for attempt in described["attempts"]] == [1, 1, 0]


def test_where_nobody_has_more_it_fails_and_says_what_is_needed(windfall: RunningWindfall):
    batch = a_queue(windfall)
    a_definition(batch, "greedy", "sh", "-c", GREEDY, gpus=1)
    [described] = windfall.wait_for([submit(batch, "greedy", on_gpu_oom="larger", gpu_model="T4")])
    assert described["status"] == "FAILED"
    needed = "Out of GPU memory: a GPU of model T4 with more than 15 GiB is needed"
    assert described["statusReason"].startswith(needed)


def test_windfall_run_asks_in_the_same_words(windfall: RunningWindfall):
    options = ("--gpu-memory-gib", "60", "--on-gpu-oom", "larger")
    done = windfall.windfall("run", *options, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert done.stdout.strip() == "GPU-large"
