"""A weekly recommender on this machine, through AWS Batch's API, with a daemon that is killed on the way.

Starts a real daemon on a free port with a data directory of its own, maps an "image" to this folder, and runs
an array (the data's shards), a GPU job that fails once and is tried again, and a chain that depends on them. In the
middle the daemon is killed with SIGKILL and started again: the jobs do not notice. Everything is removed at the end.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from windfall.cli.client import Client
from windfall.cli.endpoint import find_endpoint
from windfall.cli.errors import CliError

HERE = Path(__file__).resolve().parent
BAR_WIDTH = 12
IMAGE = "registry.example.com/recommender:latest"
COLOURS = {"PENDING": "grey62", "RUNNABLE": "yellow", "STARTING": "cyan", "RUNNING": "bright_blue"}
COLOURS |= {"SUCCEEDED": "green", "FAILED": "red", "SUBMITTED": "grey62"}


class Daemon:
    """`windfall up`, and the way to kill it."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.process: subprocess.Popen[str]

    def up(self) -> Client:
        """Start it and wait until it listens."""
        options = ["--port", "0", "--vcpus", "8", "--memory-mib", "16384", "--gpus", "simulated:4"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "windfall.cli", "up", "--data", str(self.data), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        if "listening" not in self.process.stdout.readline():
            sys.exit(f"the daemon did not start:\n{self.process.stderr.read()}")
        return Client(find_endpoint(self.data))

    def kill(self) -> None:
        """What no program can prepare for."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def down(self) -> None:
        """Stop it with everything that it started."""
        command = [sys.executable, "-m", "windfall.cli", "down", "--kill", "--data", str(self.data)]
        subprocess.run(command, capture_output=True, check=False)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()


class Story:
    """The jobs of the demo, what has happened to them, and how that looks."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.seen: dict[str, tuple[str, int]] = {}
        self.lines: list[Text] = []
        self.began = time.monotonic()

    def say(self, text: str, style: str = "") -> None:
        """Add a line to what happened."""
        stamp = f"{time.monotonic() - self.began:5.1f} s  "
        self.lines.append(Text.assemble((stamp, "grey50"), (text, style)))

    def look(self, client: Client) -> bool:
        """Ask the API how the jobs stand; the answer is whether all have ended."""
        described = client.batch("DescribeJobs", jobs=list(self.names))["jobs"]
        self.jobs = {job["jobId"]: job for job in described}
        for job_id, job in self.jobs.items():
            now = (job["status"], len(job["attempts"]))
            before, self.seen[job_id] = self.seen.get(job_id, ("", 0)), now
            if now != before:
                self._tell(job, tries_before=before[1], new_status=now[0] != before[0])
        return all(job["status"] in ("SUCCEEDED", "FAILED") for job in self.jobs.values())

    def _tell(self, job: dict[str, Any], *, tries_before: int, new_status: bool) -> None:
        name, status, tries = job["jobName"], job["status"], job["attempts"]
        if len(tries) > tries_before and status not in ("SUCCEEDED", "FAILED"):
            code = tries[-1]["container"].get("exitCode")
            self.say(f"{name}: attempt {len(tries)} failed with exit code {code}; trying again", "yellow")
        elif new_status and status in ("RUNNING", "SUCCEEDED", "FAILED"):
            self.say(f"{name} is {status}", COLOURS[status])

    def picture(self) -> Group:
        """The table of jobs above what happened lately."""
        table = Table(expand=True, border_style="grey37")
        for title, width in (("job", 10), ("state", 9), ("progress", BAR_WIDTH), ("tries", 5), ("GPUs", 6)):
            table.add_column(title, width=width, no_wrap=True)
        table.add_column("waits for", no_wrap=True)
        for job in self.jobs.values():
            table.add_row(
                job["jobName"],
                Text(job["status"], COLOURS[job["status"]]),
                self._progress(job),
                self._tries(job),
                self._gpus(job),
                ", ".join(self.names[d["jobId"]] for d in job["dependsOn"]) or "-",
            )
        return Group(table, Panel(Group(*self.lines[-14:]), title="what happened", border_style="grey37"))

    def _progress(self, job: dict[str, Any]) -> ProgressBar | Text:
        summary = job.get("arrayProperties", {}).get("statusSummary")
        if not summary:
            return Text("")
        return ProgressBar(
            total=job["arrayProperties"]["size"], completed=summary["SUCCEEDED"], width=BAR_WIDTH
        )

    def _tries(self, job: dict[str, Any]) -> str:
        if "arrayProperties" in job:
            return "-"
        return str(len(job["attempts"]) + (job["status"] in ("STARTING", "RUNNING")))

    def _gpus(self, job: dict[str, Any]) -> str:
        asked = [need["value"] for need in job["container"]["resourceRequirements"] if need["type"] == "GPU"]
        return f"{asked[0]} sim." if asked else "-"


def declare(client: Client) -> None:
    """A compute environment, a queue and three definitions, as for AWS."""
    client.own("AddImage", pattern=IMAGE, directory=str(HERE), entrypoint=["sh"], environment={})
    resources = {
        "type": "EC2",
        "minvCpus": 0,
        "maxvCpus": 8,
        "instanceTypes": ["g5"],
        "subnets": ["subnet-1"],
    }
    client.batch(
        "CreateComputeEnvironment",
        computeEnvironmentName="gpu-environment",
        type="MANAGED",
        computeResources=resources | {"instanceRole": "ecsInstanceRole"},
    )
    order = [{"order": 1, "computeEnvironment": "gpu-environment"}]
    client.batch("CreateJobQueue", jobQueueName="weekly", priority=10, computeEnvironmentOrder=order)
    for script, gpus in (("prepare", 0), ("train", 2), ("evaluate", 0)):
        needs = [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "512"}]
        needs += [{"type": "GPU", "value": str(gpus)}] if gpus else []
        container = {"image": IMAGE, "command": [f"{script}.sh"], "resourceRequirements": needs}
        client.batch(
            "RegisterJobDefinition", jobDefinitionName=script, type="container", containerProperties=container
        )


def submit(client: Client, story: Story) -> None:
    """An array, a GPU job with two attempts, and a chain behind them."""

    def job(name: str, definition: str, after: list[str], **more: Any) -> str:
        depends = [{"jobId": job_id} for job_id in after]
        answer = client.batch(
            "SubmitJob", jobName=name, jobQueue="weekly", jobDefinition=definition, dependsOn=depends, **more
        )
        story.names[answer["jobId"]] = name
        return str(answer["jobId"])

    shards = job("shards", "prepare", [], arrayProperties={"size": 24})
    epochs = {"environment": [{"name": "EPOCHS", "value": "6"}]}
    training = job("training", "train", [shards], retryStrategy={"attempts": 2}, containerOverrides=epochs)
    checked = job("evaluation", "evaluate", [training])
    job("report", "evaluate", [checked, shards])
    story.say("submitted an array of 24, a GPU job with two tries, and a chain", "bold")


def run(console: Console, story: Story, daemon: Daemon) -> None:
    """Play it through, live where there is a terminal."""
    client = daemon.up()
    story.say(f"windfall is listening on {client.endpoint.url}", "bold")
    declare(client)
    submit(client, story)
    killed = False
    with Live(console=console, refresh_per_second=12, transient=True) as live:
        while not story.look(client):
            live.update(story.picture())
            training = next(job for job in story.jobs.values() if job["jobName"] == "training")
            if not killed and training["status"] == "RUNNING" and training["attempts"]:
                killed = True
                daemon.kill()
                story.say("kill -9 of the daemon, in the middle of training", "bold red")
                live.update(story.picture())
                time.sleep(1.0)
                client = daemon.up()
                story.say("a new daemon adopted the running job; it never noticed", "bold green")
            time.sleep(0.1)
        story.look(client)
    console.print(story.picture())
    close_up(console, client, story)


def close_up(console: Console, client: Client, story: Story) -> None:
    """The log of the training job's two attempts, through CloudWatch Logs' API."""
    training = next(job for job in story.jobs.values() if job["jobName"] == "training")
    lines: list[Text] = []
    for number, attempt in enumerate(training["attempts"], start=1):
        stream = attempt["container"]["logStreamName"]
        events = client.logs(
            "GetLogEvents", logGroupName="/aws/batch/job", logStreamName=stream, startFromHead=True
        )
        lines += [Text(f"{number} | {event['message']}", "grey70") for event in events["events"]]
    console.print(
        Panel(Group(*lines), title="the log of training, attempt by attempt", border_style="grey37")
    )


def without_foreign_fonts(svg: str) -> str:
    """A picture that loads nothing from elsewhere: whatever monospace font the reader has will do."""
    svg = re.sub(r"@font-face\s*\{[^}]*\}|<!--.*?-->", "", svg, flags=re.DOTALL)
    return re.sub(r"[ \t]*\n\s*\n+", "\n", svg)


def main() -> int:
    """Run the demo and clean up after it, whatever happens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--svg", type=Path, help="also draw the last screen into this file")
    arguments = parser.parse_args()
    console = Console(record=arguments.svg is not None, width=100 if arguments.svg else None)
    data = Path(tempfile.mkdtemp(prefix="windfall-demo-"))
    data.chmod(0o711)
    story, daemon = Story(), Daemon(data)
    try:
        run(console, story, daemon)
    except (CliError, KeyboardInterrupt) as error:
        console.print(f"the demo stopped: {error or 'interrupted'}")
        return 1
    finally:
        daemon.down()
        shutil.rmtree(data, ignore_errors=True)
    ended = {job["jobName"]: job["status"] for job in story.jobs.values()}
    if arguments.svg:
        arguments.svg.write_text(without_foreign_fonts(console.export_svg(title="recommender")))
    good = set(ended.values()) == {"SUCCEEDED"}
    console.print(
        f"{'all jobs succeeded' if good else f'not as planned: {ended}'}; the data directory is removed"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
