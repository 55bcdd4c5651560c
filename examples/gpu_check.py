"""Does a job see exactly the GPUs that it was given? Run this on a machine with NVIDIA GPUs and PyTorch.

Starts a daemon with `--gpus auto`, shows its inventory, and runs three jobs: one that asks for a GPU, one that asks for
none, and one whose definition asks to see all GPUs of the host. Each says what PyTorch sees. The exit code says whether
each saw what it should. The argument is the user that jobs run as (nobody).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from windfall.cli.client import Client
from windfall.cli.endpoint import find_endpoint

LOOK = """
import json, os, torch
print(json.dumps({
    "count": torch.cuda.device_count(),
    "names": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    "sum": float(torch.ones(1000, device="cuda" if torch.cuda.is_available() else "cpu").sum()),
    "NVIDIA_VISIBLE_DEVICES": os.environ["NVIDIA_VISIBLE_DEVICES"],
    "CUDA_VISIBLE_DEVICES": os.environ["CUDA_VISIBLE_DEVICES"],
}))
"""


def run_job(client: Client, name: str, gpus: int, environment: dict[str, str]) -> dict[str, object]:
    """Run a job through the API and return what it printed."""
    needs = [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "16384"}]
    needs += [{"type": "GPU", "value": str(gpus)}] if gpus else []
    container = {
        "image": "windfall/host",
        "command": [sys.executable, "-c", LOOK],
        "resourceRequirements": needs,
        "environment": [{"name": key, "value": value} for key, value in environment.items()],
    }
    client.batch(
        "RegisterJobDefinition", jobDefinitionName=name, type="container", containerProperties=container
    )
    job_id = client.batch("SubmitJob", jobName=name, jobQueue="check", jobDefinition=name)["jobId"]
    while True:
        [job] = client.batch("DescribeJobs", jobs=[job_id])["jobs"]
        if job["status"] in ("SUCCEEDED", "FAILED"):
            break
        time.sleep(0.2)
    stream = job["container"].get("logStreamName", "")
    place = {"logGroupName": "/aws/batch/job", "logStreamName": stream, "startFromHead": True}
    events = client.logs("GetLogEvents", **place)["events"]
    if job["status"] == "FAILED":
        sys.exit(f"{name} failed: {job['container'].get('reason')} {[event['message'] for event in events]}")
    isolation = job["tags"].get("windfall:isolation")
    return {"isolation": isolation, **json.loads(events[-1]["message"])}


def main() -> int:
    """Start a daemon, look, and stop it."""
    with tempfile.TemporaryDirectory(prefix="windfall-gpu-") as directory:
        data = Path(directory) / "data"
        command = [sys.executable, "-m", "windfall.cli"]
        user = sys.argv[1] if len(sys.argv) > 1 else "nobody"
        options = ["--data", str(data), "--port", "0", "--gpus", "auto", "--job-user", user]
        daemon = subprocess.Popen([*command, "up", *options], stdout=subprocess.PIPE, text=True)
        assert daemon.stdout is not None
        print(daemon.stdout.readline().strip())
        client = Client(find_endpoint(data))
        gpus = client.own("Status")["machine"]["gpus"]
        print("inventory:", json.dumps(gpus))
        resources = {
            "type": "EC2",
            "maxvCpus": 64,
            "instanceTypes": ["p5"],
            "subnets": ["s"],
            "instanceRole": "r",
        }
        environment = {"computeEnvironmentName": "check", "type": "MANAGED", "computeResources": resources}
        client.batch("CreateComputeEnvironment", **environment)
        order = [{"order": 1, "computeEnvironment": "check"}]
        client.batch("CreateJobQueue", jobQueueName="check", priority=1, computeEnvironmentOrder=order)
        greedy = {"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": "0"}
        seen = {
            "one-gpu": run_job(client, "one-gpu", 1, {}),
            "no-gpu": run_job(client, "no-gpu", 0, {}),
            "asks-for-all": run_job(client, "asks-for-all", 1, greedy),
        }
        for name, what in seen.items():
            print(f"{name}: {json.dumps(what)}")
        subprocess.run([*command, "down", "--kill", "--data", str(data)], check=False)
        daemon.wait(60)
    good = [what["count"] for what in seen.values()] == [1, 0, 1]
    good = good and seen["asks-for-all"]["NVIDIA_VISIBLE_DEVICES"] in {gpu["id"] for gpu in gpus}
    print("each job saw exactly its own GPUs" if good else "NOT as it should be")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
