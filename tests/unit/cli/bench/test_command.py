"""`windfall bench gpu` against a fake daemon: what it submits, what it says, and what it refuses."""

from __future__ import annotations

import json
import signal
import sys

import pytest

from tests.unit.cli.bench.measured import fact, on_gpu, told

SIMULATED = {"name": "Simulated GPU", "simulated": True}
REAL = {"name": "NVIDIA H200", "simulated": False}


@pytest.fixture
def machine(daemon):
    """A daemon whose jobs end at once with the lines that the test gives, by the name of the job."""
    jobs: dict[str, dict] = {}
    lines: dict[str, list[str]] = {}
    codes: dict[str, int] = {}
    gpus: list[dict] = []

    def submit(params):
        name = params["jobName"]
        code = codes.get(name, 0)
        jobs[name] = {
            "jobId": f"id-{name}",
            "jobName": name,
            "status": "FAILED" if code else "SUCCEEDED",
            "startedAt": 1,
            "stoppedAt": 2,
            "container": {"logStreamName": name, "exitCode": code, "reason": "it broke"},
        }
        return {"jobId": f"id-{name}", "jobName": name}

    def events(params):
        start = int(params.get("nextToken") or 0)
        told_lines = lines.get(params["logStreamName"], [])[start:]
        return {
            "events": [{"message": line, "timestamp": 1} for line in told_lines],
            "nextForwardToken": str(start + len(told_lines)),
            "nextBackwardToken": "0",
        }

    daemon.answers |= {
        "Status": lambda _: {"machine": {"vcpus": 4, "memoryMib": 8192, "gpus": gpus}},
        "describejobqueues": {"jobQueues": [{"jobQueueName": "windfall", "state": "ENABLED"}]},
        "describejobdefinitions": {"jobDefinitions": [{}]},
        "submitjob": submit,
        "describejobs": lambda params: {
            "jobs": [job for job in jobs.values() if job["jobId"] in params["jobs"]]
        },
        "GetLogEvents": events,
    }
    daemon.lines, daemon.codes, daemon.gpus = lines, codes, gpus
    lines["bench-gpu-cpu"] = [told(1000, 0.02), told(16, 1e-6)]
    return daemon


def a_python(tmp_path, *libraries):
    """Something that answers the question of which libraries it has."""
    program = tmp_path / "python3"
    program.write_text(f"#!/bin/sh\necho '[[3, 12], {json.dumps(libraries)}]'\n")
    program.chmod(0o755)
    return str(program)


def test_without_a_daemon_it_says_how_to_start_one(windfall, monkeypatch, tmp_path):
    monkeypatch.setenv("WINDFALL_DATA", str(tmp_path))
    ran = windfall("bench", "gpu", "--quick")
    assert ran.code == 1
    assert "start one with `windfall up`" in ran.err


def test_a_simulated_gpu_is_not_measured(machine, windfall):
    machine.gpus.append(SIMULATED)
    ran = windfall("bench", "gpu", "--quick", "--python", sys.executable)
    assert ran.code == 0, ran.err
    assert "no real GPU is offered here (1 simulated, which compute nothing)" in ran.err
    [asked] = machine.params_of("submitjob")
    kinds = [need["type"] for need in asked["containerOverrides"]["resourceRequirements"]]
    assert kinds == ["VCPU", "MEMORY"]
    assert "The suite on the CPU" in ran.out


def test_each_gpu_library_is_a_job_and_one_without_cuda_is_left_out(machine, windfall, tmp_path):
    machine.gpus.append(REAL)
    machine.lines["bench-gpu-torch"] = [fact("first_call_s", 0.2), *on_gpu(1000, 1e-4, 2e-3, first_s=0.05)]
    machine.codes["bench-gpu-jax"] = 3
    python = a_python(tmp_path, "numpy", "torch", "jax")
    ran = windfall("bench", "gpu", "--python", python, "--json", str(tmp_path / "all.json"))
    assert ran.code == 0, ran.err
    asked = machine.params_of("submitjob")
    assert [one["jobName"] for one in asked] == ["bench-gpu-cpu", "bench-gpu-torch", "bench-gpu-jax"]
    needs = {n["type"]: n["value"] for n in asked[1]["containerOverrides"]["resourceRequirements"]}
    assert needs == {"VCPU": "4", "MEMORY": "8192", "GPU": "1"}
    variables = {v["name"]: v["value"] for v in asked[0]["containerOverrides"]["environment"]}
    assert variables["OMP_NUM_THREADS"] == "4"
    assert "jax sees no GPU" in ran.err
    document = json.loads((tmp_path / "all.json").read_text())
    assert document["schema"] == "windfall-bench-gpu/1"
    assert document["gpus"] == ["NVIDIA H200"]
    assert {one["device"] for one in document["measurements"]} == {"cpu", "gpu"}
    assert [one["mode"] for one in document["breakEven"]] == ["resident", "with transfer", "cold"]


def test_json_on_stdout_takes_the_place_of_the_tables(machine, windfall):
    ran = windfall("bench", "gpu", "--python", sys.executable, "--json", "-")
    assert json.loads(ran.out)["measurements"][0]["samplesS"] == [0.02]


def test_the_drawing_goes_where_it_is_asked_for(machine, windfall, tmp_path):
    ran = windfall("bench", "gpu", "--python", sys.executable, "--plot", str(tmp_path / "a.svg"))
    assert ran.code == 0, ran.err
    assert (tmp_path / "a.svg").read_text().startswith("<svg")


def test_a_failed_job_is_told_with_its_log(machine, windfall):
    machine.codes["bench-gpu-cpu"] = 126
    ran = windfall("bench", "gpu", "--python", sys.executable)
    assert ran.code == 1
    assert "(exit code 126) failed: it broke; read `windfall logs id-bench-gpu-cpu`" in ran.err


def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(machine, windfall, tmp_path):
    ran = windfall("bench", "gpu", "--json", str(tmp_path / "absent" / "a.json"))
    assert ran.code == 2
    assert "cannot be written" in ran.err
    assert machine.params_of("submitjob") == []


def test_a_library_that_is_not_known_is_refused_before_anything_is_made(machine, windfall):
    ran = windfall("bench", "gpu", "--frameworks", "nope")
    assert ran.code == 2
    assert "choose from numpy" in ran.err
    assert [machine.params_of(name) for name in ("describejobqueues", "createjobqueue", "submitjob")] == [
        []
    ] * 3


@pytest.mark.parametrize(
    ("options", "words"),
    [(["--plot", "a.png"], "ends with .svg, not a.png"), (["--vcpus", "100000"], "more than the")],
)
def test_what_cannot_be_had_is_refused_before_anything_runs(machine, windfall, options, words):
    ran = windfall("bench", "gpu", *options)
    assert (ran.code, words in ran.err) == (2, True)
    assert machine.params_of("submitjob") == []


def test_packing_has_no_drawing(machine, windfall, tmp_path):
    ran = windfall("bench", "gpu", "--pack", "4", "--plot", str(tmp_path / "a.svg"))
    assert (ran.code, "nothing to plot" in ran.err) == (2, True)


def test_a_library_that_fails_does_not_take_the_others_along(machine, windfall, tmp_path):
    machine.gpus.append(REAL)
    machine.codes["bench-gpu-torch"] = 1
    machine.lines["bench-gpu-torch"] = on_gpu(1000, 1e-4)
    machine.lines["bench-gpu-jax"] = on_gpu(1000, 1e-4, library="jax")
    ran = windfall("bench", "gpu", "--python", a_python(tmp_path, "numpy", "torch", "jax"))
    assert ran.code == 1
    assert "the job bench-gpu-torch (exit code 1) failed" in ran.err
    assert "CPU beside GPU with jax" in ran.out
    assert "with torch" not in ran.out
    brief = ["--brief" in one["containerOverrides"]["command"] for one in machine.params_of("submitjob")]
    assert brief == [False, False, True]


def test_who_is_told_to_end_tells_what_was_measured(machine, windfall):
    describe = machine.answers["describejobs"]

    def end_after_the_first_line(params):
        jobs = describe(params)["jobs"]
        if machine.params_of("GetLogEvents"):
            signal.raise_signal(signal.SIGTERM)
        return {"jobs": [{**job, "status": "RUNNING"} for job in jobs]}

    machine.answers |= {"describejobs": end_after_the_first_line, "terminatejob": {}}
    before = signal.getsignal(signal.SIGTERM)
    ran = windfall("bench", "gpu", "--python", sys.executable, "--json", "-")
    assert ran.code == 130
    assert json.loads(ran.out)["complete"] is False
    assert machine.params_of("terminatejob")[0]["jobId"] == "id-bench-gpu-cpu"
    assert signal.getsignal(signal.SIGTERM) == before
