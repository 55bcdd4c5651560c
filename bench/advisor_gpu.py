"""Does the advisor name the cause? Runs programs that are each made to be bound by one, as real jobs on a real GPU.

    python -m bench.advisor_gpu [--seconds 12] [--only NAME ...] [--python PYTHON] [--out DIRECTORY]

A daemon of its own samples them; `Advise` is asked as `windfall advise` asks. Prints one line per program, the
confusion table and the evidence; keeps the samples and the answers below --out. Needs a GPU and PyTorch (in --python);
without a GPU it still runs, and the advisor has to say that it does not know.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

from bench.running_daemon import ROOT, environment
from windfall.cli.client import Client
from windfall.cli.endpoint import find_endpoint

PROGRAMS = ROOT / "examples" / "bottlenecks"
#: What the advisor should say about each.
EXPECTED = {
    "network": "network",
    "disk": "disk",
    "cpu_preprocessing": "cpu-preprocessing",
    "launch_bound": "launch-bound",
    "synchronisation": "synchronisation",
    "pcie_transfer": "pcie-transfer",
    "memory_bound": "memory-bound",
    "few_requests": "waiting-for-requests",
    "held_but_idle": "held-but-idle",
    "start_up": "start-up",
    "compute_bound": "well-used",
    # Not looked at when the thresholds were set.
    "loader_workers": "cpu-preprocessing",
    "small_training": "launch-bound",
    "large_training": "well-used",
}
RATE_MB_S = 300
VCPUS = 4


def main() -> int:
    """Run the programs one after the other and compare."""
    parser = argparse.ArgumentParser(prog="python -m bench.advisor_gpu", description=__doc__)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--only", nargs="*", choices=EXPECTED)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has PyTorch")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between samples")
    parser.add_argument("--gpus", default="auto")
    parser.add_argument("--out", type=Path, help="where raw samples and answers are kept")
    given = parser.parse_args()
    data = Path(tempfile.mkdtemp(prefix="windfall-advisor-"))
    data.chmod(0o755)
    daemon = _daemon(data, given.gpus, given.every)
    server = subprocess.Popen(
        [given.python, str(PROGRAMS / "network.py"), "serve", str(RATE_MB_S)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        client = Client(find_endpoint(data))
        print("inventory:", json.dumps(client.own("Status")["machine"]["gpus"]), flush=True)
        _declare(client)
        results = [_judge(client, name, given, port, data) for name in given.only or EXPECTED]
        ranked = client.own("Advise", sinceAt=0)["jobs"]
        _show(results, ranked)
        if given.out is not None:
            (given.out / "advice.json").write_text(json.dumps(results, indent=1))
    finally:
        server.terminate()
        server.wait()
        command = [sys.executable, "-m", "windfall.cli", "down", "--kill", "--data", str(data)]
        subprocess.run(command, capture_output=True, check=False, env=environment())
        daemon.wait(60)
        shutil.rmtree(data, ignore_errors=True)
    return 0


def _daemon(data: Path, gpus: str, every_s: float) -> subprocess.Popen[str]:
    # Jobs run as this user: the interpreter with PyTorch may be out of reach for others.
    options = ["--port", "0", "--gpus", gpus, "--job-user", getpass.getuser(), "--data", str(data)]
    daemon = subprocess.Popen(
        [sys.executable, "-m", "windfall.cli", "up", *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**environment(), "WINDFALL_SAMPLE_EVERY_S": str(every_s), "WINDFALL_RUNTIME": "process"},
    )
    assert daemon.stdout is not None
    print(daemon.stdout.readline().strip(), flush=True)
    return daemon


def _declare(client: Client) -> None:
    resources = {
        "type": "EC2",
        "maxvCpus": 64,
        "instanceTypes": ["p5"],
        "subnets": ["s"],
        "instanceRole": "r",
    }
    client.batch(
        "CreateComputeEnvironment", computeEnvironmentName="gpu", type="MANAGED", computeResources=resources
    )
    order = [{"order": 1, "computeEnvironment": "gpu"}]
    client.batch("CreateJobQueue", jobQueueName="gpu", priority=1, computeEnvironmentOrder=order)


def _judge(client: Client, name: str, given: argparse.Namespace, port: str, data: Path) -> dict[str, Any]:
    """Run one program as a job and ask about it."""
    more = {"network": [f"127.0.0.1:{port}"], "disk": ["."]}.get(name, [])
    gpus = len(client.own("Status")["machine"]["gpus"])
    needs = [
        {"type": "VCPU", "value": str(min(VCPUS, os.cpu_count() or 1))},
        {"type": "MEMORY", "value": "16384"},
    ]
    container = {
        "image": "windfall/host",
        "command": [given.python, str(PROGRAMS / f"{name}.py"), str(given.seconds), *more],
        "resourceRequirements": needs + ([{"type": "GPU", "value": "1"}] if gpus else []),
    }
    client.batch(
        "RegisterJobDefinition", jobDefinitionName=name, type="container", containerProperties=container
    )
    job_id = client.batch("SubmitJob", jobName=name, jobQueue="gpu", jobDefinition=name)["jobId"]
    until = time.monotonic() + given.seconds * 3 + 90
    while True:
        [job] = client.batch("DescribeJobs", jobs=[job_id])["jobs"]
        if job["status"] in ("SUCCEEDED", "FAILED"):
            break
        if time.monotonic() > until:
            client.batch("TerminateJob", jobId=job_id, reason="took too long")
        time.sleep(0.2)
    [row] = client.own("Advise", jobId=job_id)["jobs"]
    said = row["cause"] or ("unknown: " + (row["note"] or "branches"))
    verdict = "as made" if said == EXPECTED[name] else "OTHERWISE"
    print(f"{name}: {said} ({row['confidence']:.2f}) {verdict} {job['status']}", flush=True)
    for line in row["evidence"]:
        print(f"    {line}", flush=True)
    for branch in row["branches"]:
        print(f"    or {branch['cause']} {branch['condition']}", flush=True)
    if given.out is not None:
        _keep(name, data, job, given.out)
    return {"program": name, "expected": EXPECTED[name], "said": said, "status": job["status"], "answer": row}


def _keep(name: str, data: Path, job: dict[str, Any], out: Path) -> None:
    """Keep the samples of one job, all of them in one file, so that they come back with few."""
    stream = job["container"].get("logStreamName", "").rsplit("/", 1)[-1]
    for file in (data / "logs").glob("*.samples"):
        if file.stem == stream:
            out.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(out / "samples.zip", "a", zipfile.ZIP_DEFLATED) as archive:
                archive.write(file, f"{name}.samples")
    if job["status"] == "FAILED":
        for file in (data / "logs").glob(f"{stream}*.log"):
            print(file.read_text()[-2000:], flush=True)


def _show(results: list[dict[str, Any]], ranked: list[dict[str, Any]]) -> None:
    said = list(dict.fromkeys(result["said"] for result in results))
    table = Counter((result["program"], result["said"]) for result in results)
    width = max(len(result["program"]) for result in results) + 2
    print(f"\n{'made to be bound by':{width}}" + "".join(f"{name[:20]:>22}" for name in said))
    for result in results:
        print(
            f"{result['program']:{width}}"
            + "".join(f"{table[result['program'], name] or '.':>22}" for name in said)
        )
    right = sum(result["said"] == result["expected"] for result in results)
    among = sum(
        result["expected"] in (result["said"], *(branch["cause"] for branch in result["answer"]["branches"]))
        for result in results
    )
    print(
        f"\nnamed as made: {right} of {len(results)}; named or among the branches: {among} of {len(results)}"
    )
    print(
        "by wasted GPU hours: "
        + ", ".join(f"{row['jobName']} {row['wastedGpuHours'] or 0:.4f}" for row in ranked)
    )


if __name__ == "__main__":
    sys.exit(main())
