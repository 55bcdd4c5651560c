"""What `windfall gpus` prints, and what it asks of the daemon."""

from __future__ import annotations

import json
from typing import Any

import pytest

JOB = "0b5ae4ae-4b5c-4f5e-9d3c-2f6a1c0d9e11"
ONE, TWO = "GPU-5d7decd3-cb70-24fb", "MIG-14a247de-5616-58fe"


def a_gpu(gpu_id: str, **facts: Any) -> dict[str, Any]:
    return {
        "machine": "this-host",
        "machineName": "gpu1",
        "id": gpu_id,
        "name": "NVIDIA H200",
        "memoryMib": 143_771,
        "simulated": False,
        "driver": "580.159.04",
        "parent": None,
        "sharing": "mps",
        "sharingNote": None,
        "health": "well",
        "fence": None,
        "fencedByHand": False,
        "pardoned": None,
        "notes": [],
        "heldBy": None,
        "holders": [],
        **facts,
    }


@pytest.fixture
def answers(daemon) -> dict[str, Any]:
    holders = [{"jobId": JOB, "share": 0.25}, {"jobId": f"{JOB}:7", "share": 0.5}]
    daemon.answers["Gpus"] = {
        "gpus": [
            a_gpu(ONE, heldBy=JOB, holders=holders, notes=["slowed down: power brake"], health="noted"),
            a_gpu(
                TWO,
                sharing=None,
                sharingNote="a MIG slice is a share already",
                fence="XID 79",
                health="fenced",
            ),
        ]
    }
    daemon.answers["FenceGpu"] = {"gpuId": ONE, "reason": "fan", "heldBy": 2}
    return daemon.answers


def squeezed(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def test_the_table_and_what_there_is_to_say(answers, windfall):
    page = squeezed(windfall("gpus").out)
    assert page.startswith("GPU NAME MEMORY DRIVER HEALTH SHARED BY HELD BY")
    assert f"{ONE} NVIDIA H200 140.4 GiB 580.159.04 noted mps {JOB} (25%), {JOB}:7 (50%)" in page
    assert f"{TWO} NVIDIA H200 140.4 GiB 580.159.04 fenced no free" in page
    assert f"{ONE}: slowed down: power brake" in page
    assert f"{TWO}: fenced: XID 79; `windfall gpus unfence {TWO}` overrules it" in page
    assert f"{TWO}: cannot be shared: a MIG slice is a share already" in page
    assert json.loads(windfall("gpus", "--json").out) == answers["Gpus"]


def test_it_fits_a_terminal(answers, windfall, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    table = windfall("gpus").out.splitlines()[:3]
    assert all(len(line) <= 80 for line in table)
    assert [line.split()[0] for line in table[1:]] == [ONE[:12], TWO[:12]]
    assert table[1].endswith("  2 jobs")
    assert f"{ONE[:12]}: held by {JOB[:8]} (25%), {JOB[:8]}:7 (50%)" in windfall("gpus").out.splitlines()


def test_what_was_forgiven_and_done_by_hand_is_told(daemon, windfall):
    daemon.answers["Gpus"] = {
        "gpus": [
            a_gpu(ONE, pardoned="XID 48"),
            a_gpu(TWO, fence="new fan", fencedByHand=True, health="fenced"),
        ]
    }
    page = windfall("gpus").out
    assert f"{ONE}: used although: XID 48" in page
    assert f"{TWO}: fenced by hand: new fan" in page


def test_no_gpus(daemon, windfall):
    daemon.answers["Gpus"] = {"gpus": []}
    assert windfall("gpus").out.startswith("no GPUs; `windfall doctor`")


@pytest.mark.parametrize("text", [ONE, "GPU-5", "5d7d", "GPU"])
def test_a_fence_names_a_gpu_by_as_much_as_is_needed(answers, daemon, windfall, text: str):
    assert windfall("gpus", "fence", text, "--reason", "fan").out == (
        f"{ONE} gets no new job; 2 jobs on it will end as ever\n"
    )
    assert daemon.params_of("FenceGpu") == [{"gpuId": ONE, "reason": "fan", "machineId": "this-host"}]


def test_unfencing_sends_no_reason(answers, daemon, windfall):
    answers["FenceGpu"] = {"gpuId": TWO, "reason": None, "heldBy": 0}
    assert windfall("gpus", "unfence", "MIG").out == f"{TWO} gets new jobs again\n"
    assert daemon.params_of("FenceGpu") == [{"gpuId": TWO, "machineId": "this-host"}]


def test_a_gpu_that_nobody_knows_is_refused(answers, windfall):
    ran = windfall("gpus", "fence", "x", "--reason", "fan")
    assert ran.code == 1
    assert ran.err == "windfall: no GPU has an id that begins with 'x'; `windfall gpus` lists them\n"


def test_gpus_of_several_machines_name_their_host_and_a_fence_chooses_one(answers, daemon, windfall):
    answers["Gpus"] = {"gpus": [a_gpu(ONE), a_gpu(ONE, machine="other", machineName="gpu2")]}
    page = squeezed(windfall("gpus").out)
    assert page.startswith("HOST GPU NAME")
    assert f"\ngpu2 {ONE} NVIDIA H200" in page
    refused = windfall("gpus", "fence", ONE, "--reason", "fan")
    assert refused.err.endswith("`windfall gpus` lists them, and --host chooses a machine\n")
    windfall("gpus", "fence", ONE, "--reason", "fan", "--host", "gpu2")
    assert daemon.params_of("FenceGpu") == [{"gpuId": ONE, "reason": "fan", "machineId": "other"}]
