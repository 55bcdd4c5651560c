"""The pages of `windfall top` and `windfall metrics` over an answer that a test made: widths, words, refusals."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.fake_daemon import Error
from windfall.cli.metrics import page, why_none
from windfall.cli.top_screen import screen

JOB = "11111111-2222-3333-4444-555555555555"
GPU = {
    "busy": 0.9,
    "memoryBytes": 2.0**36,
    "powerW": 600.0,
    "smClockMhz": 1755.0,
    "temperatureC": 61.0,
    "pcieRxBytesS": 1e9,
    "pcieTxBytesS": None,
    "smActive": 0.8,
    "smOccupancy": None,
    "memoryActive": 0.5,
    "tensorActive": None,
    "throttle": 0.0,
}
NOTHING = dict.fromkeys(GPU)


def a_sample(at: int = 60_000, **more):
    known = {
        "at": at,
        "spanMs": 2_000,
        "cpuCores": 1.5,
        "busiestThread": 1.0,
        "memoryBytes": 3e9,
        "processes": 4.0,
        "readBytesS": 1e6,
        "writeBytesS": 5e5,
        "netRxBytesS": None,
        "netTxBytesS": None,
        "hostRxBytesS": 0.0,
        "hostTxBytesS": 0.0,
        "diskWaiters": 0.0,
        "cpuThrottled": 0.0,
        "steps": 8.0,
        "dataWaitS": None,
        "stallS": None,
        "gpus": [GPU],
    }
    return known | more


def a_job(number: int = 1, **more):
    job = {
        "jobId": f"{number:08d}{JOB[8:]}",
        "jobName": f"train-{number}",
        "state": "RUNNING",
        "attempt": 1,
        "startedAt": 1_000,
        "doing": None,
        "vcpus": 4.0,
        "memoryMib": 4096,
        "gpuIds": ["GPU-1"],
        "sample": a_sample(),
        "cause": None,
    }
    return job | more


def an_answer(*jobs, gpus: int = 1, **more):
    devices = [
        {
            "id": f"GPU-{n}",
            "name": "NVIDIA H200",
            "memoryMib": 143_771,
            "simulated": False,
            "fence": None,
            "heldBy": [jobs[0]["jobId"]] if n == 0 and jobs else [],
            "sample": GPU if n == 0 else NOTHING,
        }
        for n in range(gpus)
    ]
    answer = {
        "at": 61_000,
        "sampleEveryS": 2.0,
        "host": {
            "vcpus": 16,
            "offeredVcpus": 16.0,
            "memoryMib": 65_536,
            "load": [1.0, 0.5, 0.2],
            "sample": a_sample(),
        },
        "gpus": devices,
        "jobs": list(jobs),
        "running": len(jobs),
        "waiting": 3,
        "front": [],
    }
    return answer | more


def plain(lines) -> list[str]:
    return [line.plain.rstrip() for line in lines]


def test_a_usual_terminal_cuts_nothing_and_says_what_is_simulated():
    busy = a_sample(readBytesS=98_700.0, writeBytesS=98_700.0)
    answer = an_answer(a_job())
    answer["host"]["sample"] = busy
    answer["gpus"][0]["simulated"] = True
    lines = plain(screen(answer, 80, None))
    assert "…" not in "".join(lines)
    assert lines[4].startswith("GPU 0  H200 (simulated) ")
    answer["gpus"][0]["name"] = "NVIDIA H100 80GB HBM3"
    assert plain(screen(answer, 80, None))[4].startswith("GPU 0  H100 80GB (sim.) ")


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_screen_fits_its_width(width):
    lines = plain(screen(an_answer(a_job(), a_job(2, cause="cpu-preprocessing"), gpus=3), width, None))
    assert max(len(line) for line in lines) <= width
    assert any("train-1" in line or "train-…" in line for line in lines)


def a_waiting_job(number: int, **more):
    asked = [
        {"type": "VCPU", "value": "2"},
        {"type": "MEMORY", "value": "2048"},
        {"type": "GPU", "value": "1"},
    ]
    job = {
        "jobId": f"{number:08x}-0000-4000-8000-000000000000",
        "jobName": f"next-{number}",
        "jobQueue": "windfall",
        "createdAt": 1_000,
        "container": {"resourceRequirements": asked},
    }
    return job | more


@pytest.mark.parametrize("width", [60, 80, 140])
def test_jobs_that_wait_are_listed_below_those_that_run(width):
    front = [a_waiting_job(number) for number in range(3)]
    lines = plain(screen(an_answer(a_job(), waiting=3, front=front), width, None))
    assert max(len(line) for line in lines) <= width
    assert lines[-4].split()[:2] == ["WAITING", "NAME"]
    assert [line.split()[1] for line in lines[-3:]] == ["next-0", "next-1", "next-2"]
    assert "1 min" in lines[-1]
    if width >= 80:
        assert lines[-1].endswith("2 vCPUs, 2,048 MiB, 1 GPU")
    assert plain(screen(an_answer(waiting=9, front=front), width, None))[-1].startswith("9 jobs wait; see")


@pytest.mark.parametrize("height", range(4, 30))
def test_running_jobs_come_before_waiting_ones_on_a_low_screen(height):
    front = [a_waiting_job(number) for number in range(10)]
    lines = plain(screen(an_answer(a_job(), waiting=10, front=front, gpus=0), 80, height))
    assert any("train-" in line for line in lines)
    assert len(lines) <= max(height, 8)
    assert any("wait" in line.lower() for line in lines)


def test_a_low_screen_counts_what_it_does_not_show():
    jobs = [a_job(number) for number in range(40)]
    lines = plain(screen(an_answer(*jobs, gpus=16), 80, 24))
    assert len(lines) <= 24
    assert any("more GPUs" in line for line in lines)
    assert lines[-2].startswith("and 3")


def test_a_wide_screen_has_steps_and_what_limits_a_job():
    text = "\n".join(plain(screen(an_answer(a_job(cause="network")), 140, None)))
    assert "STEPS/S" in text
    assert "LIMITED BY" in text
    assert "network" in text
    assert "  4 " in text


def test_what_is_not_known_is_a_dash():
    starting = a_job(2, sample=None, startedAt=None, state="STARTING", doing="pulling image x: 45 %")
    answer = an_answer(a_job(), starting, gpus=2)
    answer["host"]["sample"] = None
    lines = plain(screen(answer, 140, None))
    assert "- of 16 cores" in lines[1]
    assert lines[5].endswith("free")
    assert "pulling image x: 45 %" in lines[-2]


def test_a_held_gpu_that_does_little_is_red_and_a_used_one_green():
    idle = an_answer(a_job())
    idle["gpus"][0]["sample"] = GPU | {"busy": 0.05}
    assert any(span.style == "red" for span in screen(idle, 80, None)[4].spans)
    assert any(span.style == "green" for span in screen(an_answer(a_job()), 80, None)[4].spans)


def test_a_fenced_gpu_says_why():
    answer = an_answer()
    answer["gpus"][0]["fence"] = "XID 79"
    assert plain(screen(answer, 100, None))[4].endswith("fenced: XID 79")


def test_trouble_and_sampling_that_is_off_are_said_at_the_top():
    assert "is away" in screen(an_answer(), 100, None, "the daemon is away")[0].plain
    assert "sampling is off" in screen(an_answer(sampleEveryS=0), 100, None)[0].plain
    assert plain(screen(an_answer(), 80, None))[-2:] == [
        "nothing runs",
        "3 jobs wait; see `windfall jobs --state runnable`",
    ]


def test_names_of_others_do_not_move_the_cursor():
    answer = an_answer(a_job(jobName="evil\x1b[2J"))
    assert "\x1b" not in "".join(plain(screen(answer, 80, None)))


# --- metrics ------------------------------------------------------------------------------------------


def recorded(*samples, gpus: int = 1, **more):
    device = {"id": "GPU-1234567890", "name": "H200", "memoryMib": 143_771, "powerLimitW": 700.0}
    answer = {
        "jobId": JOB,
        "jobName": "train",
        "state": "RUNNING",
        "attempt": 1,
        "attempts": 1,
        "sampleEveryS": 2.0,
        "startedAt": 0,
        "stoppedAt": None,
        "vcpus": 4.0,
        "memoryMib": 4096,
        "gpus": [device] * gpus,
        "samples": [sample | {"gpus": sample["gpus"] * gpus} for sample in samples],
    }
    return answer | more


@pytest.mark.parametrize("width", [40, 60, 80, 119, 120, 200])
def test_the_page_fits_its_width(width):
    lines = plain(page(recorded(*(a_sample(2_000 * n) for n in range(1, 30))), width))
    assert max(len(line) for line in lines) <= width
    assert "GPU use" in lines[2]


def test_all_curves_begin_in_one_column():
    gpu = GPU | {"pcieRxBytesS": 100e6, "pcieTxBytesS": 1e6}
    lines = plain(page(recorded(a_sample(2_000, gpus=[gpu]), a_sample(4_000, gpus=[gpu])), 80))
    drawn = [line for line in lines if "┤" in line or "│" in line]
    assert "101.0 MB/s" in "".join(drawn)
    assert {line.find("┤") if "┤" in line else line.find("│") for line in drawn} == {11}


def test_only_what_is_known_has_a_frame():
    text = "\n".join(plain(page(recorded(a_sample(2_000)), 80)))
    assert "\nsteps " in text
    assert "\nnetwork" not in text
    assert "SM active mean 80 %, GPU memory bandwidth mean 50 %" in text
    assert "GPU" not in "\n".join(plain(page(recorded(a_sample(2_000), gpus=0), 80)))


def test_each_of_several_gpus_has_a_line():
    text = plain(page(recorded(a_sample(2_000), gpus=4), 100))
    assert sum(line.startswith("GPU-12345678") for line in text) == 4
    assert any("mean of 4" in line for line in text)


def test_the_command_asks_for_what_was_asked(windfall, daemon):
    daemon.answers["Samples"] = recorded(a_sample(2_000))
    ran = windfall("metrics", JOB, "--attempt", "2", "--csv")
    assert ran.code == 0
    assert daemon.params_of("Samples")[0] | {"sinceAt": 0} == {"jobId": JOB, "attempt": 2, "sinceAt": 0}
    assert ran.out.splitlines()[0].startswith("at,spanMs,cpuCores")
    assert "gpu0.busy" in ran.out
    assert json.loads(windfall("metrics", JOB, "--json").out)["jobName"] == "train"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"attempt": None, "startedAt": None, "state": "RUNNABLE"}, "has not run yet: it is RUNNABLE"),
        ({"attempt": None, "startedAt": None, "state": "FAILED"}, "ended before it ran"),
        ({"sampleEveryS": 0}, "sampling is turned off"),
        ({"startedAt": None}, "has not started"),
        ({"stoppedAt": 900}, "ran for 0.9 s, too short"),
        ({"stoppedAt": 90_000}, "no samples of attempt 1"),
    ],
)
def test_why_there_is_nothing_to_show_is_said(more, words):
    assert words in why_none(recorded(**more), 100_000)


def test_top_without_a_terminal_prints_once(windfall, daemon):
    daemon.answers["Top"] = an_answer(a_job())
    daemon.answers["describejobqueues"] = {"jobQueues": []}
    ran = windfall("top")
    assert ran.code == 0
    assert ran.out.startswith("windfall  1 running, 3 waiting")
    assert len(daemon.params_of("Top")) == 1


def test_top_asks_each_queue_for_the_jobs_that_start_next(windfall, daemon):
    ids = [a_waiting_job(number)["jobId"] for number in range(2)]
    daemon.answers["Top"] = an_answer(a_job())
    daemon.answers["describejobqueues"] = {"jobQueues": [{"jobQueueName": "gone"}, {"jobQueueName": "q"}]}
    daemon.answers["getjobqueuesnapshot"] = lambda asked: (
        {"frontOfQueue": {"jobs": [{"jobArn": f"arn:aws:batch:r:1:job/{job_id}"} for job_id in ids]}}
        if asked["jobQueue"] == "q"
        else Error("ClientException", "gone does not exist")
    )
    # In another order than asked.
    daemon.answers["describejobs"] = {"jobs": [a_waiting_job(1), a_waiting_job(0)]}
    ran = windfall("top")
    assert [line.split()[1] for line in ran.out.splitlines()[-3:-1]] == ["next-0", "next-1"]
    assert ran.out.splitlines()[-1].startswith("3 jobs wait; see")
    assert [job["jobId"] for job in json.loads(windfall("top", "--json").out)["front"]] == ids


@pytest.mark.parametrize("width", [80, 140])
def test_jobs_on_other_machines_name_their_host(width):
    answer = an_answer(a_job(1, machine="gpu1"), a_job(2, machine=None))
    lines = plain(screen(answer, width, None))
    assert all(len(line) <= width for line in lines)
    assert next(line for line in lines if line.startswith("JOB")).split()[:3] == ["JOB", "NAME", "HOST"]
    assert any("train-1  gpu1" in line for line in lines)
    assert any("train-2  here" in line for line in lines)
