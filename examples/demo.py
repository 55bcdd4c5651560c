"""`make demo`: a model is trained on spot capacity that is taken away three times, and loses nothing.

Starts a real daemon on a free port with a simulated spot market: the machines, their prices and their interruptions are
simulated; the training processes, notices, checkpoints and restores are real. The same training runs once on capacity
that nobody takes away. At the end both have the same weights, bit for bit, and a bill each. With a terminal and a
browser, the page then shows the life of the spot training until Enter is pressed. Everything is removed.
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

from daemon_of_its_own import Daemon
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from windfall.cli.client import Client
from windfall.cli.dashboard import has_browser
from windfall.cli.errors import CliError

HERE = Path(__file__).resolve().parent
TEXTS = [HERE.parent / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
STEPS = 1200
#: A type whose spot price the catalog knows, with its date.
INSTANCE_TYPE = "g5.2xlarge"
#: Seconds after the launch of the first, second and third instance at which the market takes it back.
INTERRUPTIONS = "6,7,6"
#: What stands beside a life line: the frame, the first column and the last loss.
BESIDE = 20
#: The exit status of a program that Ctrl-C has ended.
INTERRUPTED = 128 + signal.SIGINT
#: Each part of a life with its own sign, so that it can be read without colour.
LOOKS = {
    "waiting": ("·", "yellow"),
    "starting": ("░", "cyan"),
    "training": ("━", "bright_blue"),
    "notice": ("!", "magenta"),
    "saving": ("▒", "green"),
}
SPARKS = "▁▂▃▄▅▆▇█"

Attempt = dict[str, Any]


class Training:
    """One job of the demo: how it stands, what happened to it, and how that looks."""

    def __init__(self, name: str, job_id: str) -> None:
        self.name, self.job_id = name, job_id
        self.job: dict[str, Any] = {}
        self.attempts: list[Attempt] = []
        self.losses: dict[int, float] = {}
        self.saves: list[int] = []
        self.told: set[tuple[int, str]] = set()

    def look(self, client: Client) -> list[tuple[str, str]]:
        """Ask the API; the answer is what is new, each with its colour."""
        self.job = client.batch("DescribeJobs", jobs=[self.job_id])["jobs"][0]
        self.attempts = client.own("Attempts", jobId=self.job_id)["attempts"]
        for line in log_lines(client, self):
            if found := re.fullmatch(r"step (\d+) loss ([\d.]+)", line):
                self.losses[int(found[1])] = float(found[2])
        news: list[tuple[str, str]] = []
        for attempt in self.attempts:
            saved = attempt["checkpoint"]
            if saved and saved["at"] not in self.saves:
                self.saves.append(saved["at"])
            news += self._news_of(attempt)
        return news

    def _news_of(self, attempt: Attempt) -> list[tuple[str, str]]:
        number, restored, saved = attempt["number"], attempt["restored"], attempt["checkpoint"]
        words = [
            (
                attempt["startedAt"] and restored and "resumed",
                f"resumed at step {_step(restored)}",
                "bold green",
            ),
            (attempt["startedAt"] and not restored and "began", "began at step 0", "bright_blue"),
            (
                attempt["stopAt"] and "notice",
                f"notice: its {attempt['instanceType']} is taken away",
                "bold magenta",
            ),
            (
                attempt["stoppedAt"] and attempt["stopCause"] and "left",
                f"saved step {_step(saved)} and left, {_seconds(attempt, 'stopAt', 'stoppedAt')} after the notice",
                "magenta",
            ),
            (
                attempt["stoppedAt"] and attempt["exitCode"] is None and not attempt["stopCause"] and "lost",
                f"lost its machine: {attempt['statusReason']}",
                "bold red",
            ),
        ]
        news = []
        for happened, text, colour in words:
            if happened and (number, happened) not in self.told:
                self.told.add((number, happened))
                news.append((f"{self.name}, attempt {number}: {text}", colour))
        return news

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.job.get("status") in ("SUCCEEDED", "FAILED")

    @property
    def step(self) -> int:
        """The last step that it told."""
        if self.job.get("status") == "SUCCEEDED":
            return STEPS
        return max(self.losses, default=0)

    def life_line(self, now: int, width: int) -> Text:
        """Its life so far, one character per moment; a tick where a checkpoint became safe."""
        begin = self.job["createdAt"]
        end = max(self.job.get("stoppedAt") or now, begin + 1)
        shown = ["waiting"] * width
        for attempt in self.attempts:
            over = attempt["stoppedAt"] or now
            for kind, since, until in (
                ("starting", attempt["placedAt"], attempt["startedAt"] or over),
                ("training", attempt["startedAt"], attempt["stopAt"] or attempt["exitedAt"] or over),
                ("notice", attempt["stopAt"], attempt["exitedAt"] or over),
                ("saving", attempt["exitedAt"], over),
            ):
                if since is not None and until > since:
                    _paint(shown, kind, (since - begin) / (end - begin), (until - begin) / (end - begin))
        marks = {
            min(width - 1, int(width * (at - begin) / (end - begin)))
            for at in self.saves
            if begin <= at <= end
        }
        line = Text()
        for place, kind in enumerate(shown):
            line.append(*(("┃", "bold green") if place in marks else LOOKS[kind]))
        return line

    def loss_line(self, width: int) -> Text:
        """The loss as it fell."""
        points = [self.losses[step] for step in sorted(self.losses)]
        if not points:
            return Text("")
        count = min(width - 7, len(points))
        chosen = [points[int(index * len(points) / count)] for index in range(count)]
        low, high = min(points), max(points)
        heights = [int((point - low) / (high - low or 1) * (len(SPARKS) - 1)) for point in chosen]
        return Text("".join(SPARKS[height] for height in heights) + f"  {points[-1]:.3f}", "grey70")


def _step(mark: dict[str, Any] | None) -> str:
    return "-" if mark is None or mark["step"] is None else f"{mark['step']:,}"


def _seconds(attempt: Attempt, since: str, until: str) -> str:
    return f"{(attempt[until] - attempt[since]) / 1000:.1f} s" if attempt[since] and attempt[until] else "-"


def _paint(shown: list[str], kind: str, since: float, until: float) -> None:
    first = min(len(shown) - 1, int(since * len(shown)))
    for place in range(first, max(first + 1, min(len(shown), round(until * len(shown))))):
        shown[place] = kind


class Story:
    """Both trainings, and what happened lately."""

    def __init__(self, trainings: list[Training]) -> None:
        self.trainings = trainings
        self.lines: list[Text] = []
        self.began = time.monotonic()

    def say(self, text: str, style: str = "") -> None:
        """Add a line to what happened."""
        stamp = f"{time.monotonic() - self.began:5.1f} s  "
        self.lines.append(Text.assemble((stamp, "grey50"), (text, style)))

    def look(self, client: Client) -> bool:
        """Ask how all stand; the answer is whether all have ended."""
        for training in self.trainings:
            for text, style in training.look(client):
                self.say(text, style)
        return all(training.ended for training in self.trainings)

    def picture(self, width: int) -> Group:
        """Life lines above what happened lately, for a terminal of this width."""
        now = time.time_ns() // 1_000_000
        table = Table(expand=True, border_style="grey37", show_header=False, padding=(0, 1))
        table.add_column(width=10, no_wrap=True)
        table.add_column(no_wrap=True)
        for training in self.trainings:
            status = training.job.get("status", "")
            state = Text(
                f"{status} step {training.step:,} of {STEPS:,}", "green" if status == "SUCCEEDED" else ""
            )
            table.add_row(Text(training.name, "bold"), state)
            table.add_row("life", training.life_line(now, max(20, width - BESIDE)))
            table.add_row("loss", training.loss_line(max(20, width - BESIDE)))
        legend = Text("  ")
        for kind, (sign, colour) in LOOKS.items():
            legend.append(f"{sign * 2} ", colour).append(f"{kind}  ", "grey70")
        legend.append("┃ ", "bold green").append("checkpoint safe", "grey70")
        happened = Panel(Group(*self.lines[-12:]), title="what happened", border_style="grey37")
        return Group(table, legend, happened)


def declare(client: Client) -> None:
    """A spot environment whose machines are taken back, and one on demand; a queue for each; one definition."""
    for name, kind, tags in (
        ("spot", "SPOT", {"windfall:interrupt-at": INTERRUPTIONS}),
        ("on-demand", "EC2", {}),
    ):
        client.batch(
            "CreateComputeEnvironment",
            computeEnvironmentName=name,
            type="MANAGED",
            computeResources={
                "type": kind,
                "minvCpus": 0,
                "maxvCpus": 8,
                "instanceTypes": [INSTANCE_TYPE],
                "subnets": ["subnet-1"],
                "instanceRole": "ecsInstanceRole",
            },
            tags={"windfall:engine": "simulated", **tags},
        )
        order = [{"order": 1, "computeEnvironment": name}]
        client.batch("CreateJobQueue", jobQueueName=name, priority=1, computeEnvironmentOrder=order)
    command = [sys.executable, str(HERE / "spot-training" / "train.py"), str(STEPS), *map(str, TEXTS)]
    needs = [
        {"type": "VCPU", "value": "4"},
        {"type": "MEMORY", "value": "8192"},
        {"type": "GPU", "value": "1"},
    ]
    client.batch(
        "RegisterJobDefinition",
        jobDefinitionName="train",
        type="container",
        containerProperties={
            "image": "windfall/host",
            "command": command,
            "environment": [{"name": "PACE_S", "value": "0.016"}],
            "resourceRequirements": needs,
        },
    )


def submit(client: Client, name: str, queue: str) -> Training:
    """The training, with a checkpoint directory that is kept safe."""
    answer = client.batch(
        "SubmitJob",
        jobName=name,
        jobQueue=queue,
        jobDefinition="train",
        tags={"windfall:checkpoint": "true"},
    )
    return Training(name, str(answer["jobId"]))


def log_lines(client: Client, training: Training) -> list[str]:
    """The log of a job's latest attempt, through CloudWatch Logs' API."""
    stream = training.job["container"].get("logStreamName")
    if stream is None:
        return [training.job.get("statusReason", "")]
    events = client.logs(
        "GetLogEvents", logGroupName="/aws/batch/job", logStreamName=stream, startFromHead=True
    )
    return [event["message"] for event in events["events"]]


def digest(client: Client, training: Training) -> str:
    """What the job said about its final weights."""
    found = [line.split()[-1] for line in log_lines(client, training) if "sha256" in line]
    return found[-1] if found else "none"


def play(console: Console, daemon: Daemon, *, browser: bool) -> bool:
    """Play it through, live where there is a terminal; the answer is whether all went as promised."""
    client = daemon.up()
    declare(client)
    spot = submit(client, "spot", "spot")
    reference = submit(client, "on-demand", "on-demand")
    story = Story([spot, reference])
    story.say(f"windfall is listening on {client.endpoint.url}", "bold")
    story.say(f"the same training twice: on spot {INSTANCE_TYPE}, and on demand to compare")
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        while not story.look(client):
            live.update(story.picture(console.width))
            time.sleep(0.2)
    console.print(story.picture(console.width))
    for training in story.trainings:
        if training.job["status"] == "FAILED":
            failed = f"the log of {training.name}, which failed"
            console.print(Panel("\n".join(log_lines(client, training)[-20:]), title=failed))
    digests = [digest(client, training) for training in story.trainings]
    same = digests[0] == digests[1] != "none"
    lost = sum(1 for attempt in spot.attempts if attempt["stopCause"])
    verdict = "the same bits" if same else "DIFFERENT weights"
    proof = Group(
        Text(f"spot       {digests[0]}", "green" if same else "red"),
        Text(f"on-demand  {digests[1]}", "green" if same else "red"),
        Text(f"{lost} interruptions and none: {verdict}", "bold"),
    )
    console.print(Panel(proof, title="proof: sha256 of the final weights", border_style="grey37"))
    console.print(bill(client))
    if browser and console.is_terminal and sys.stdin.isatty() and has_browser():
        show_page(console, daemon, spot)
    return same and lost == len(INTERRUPTIONS.split(","))


def show_page(console: Console, daemon: Daemon, training: Training) -> None:
    """Open the page at the life line of a training, and wait for Enter: the daemon is stopped afterwards."""
    command = [sys.executable, "-m", "windfall.cli", "dashboard", training.job_id, "--data", str(daemon.data)]
    subprocess.run(command, check=False)
    console.input("the page shows what happened to the spot training; press Enter to stop the demo ")


def bill(client: Client) -> Panel:
    """What both cost, as `windfall cost --by queue` has it."""
    answer = client.own("Cost", by="queue")
    table = Table(box=None, padding=(0, 0, 0, 1), header_style="grey70")
    names = ("useful", "checkpoint", "lost", "startUp", "idle")
    for title in ("", "useful", "saving", "lost", "start", "idle", "paid $", "on demand $", "saved"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in answer["rows"]:
        seconds = [f"{row['ms'][name] / 1000:.1f}" for name in names]
        money = [f"{row['paidUsd']:.4f}", f"{row['onDemandUsd']:.4f}", f"{row['savedPercent'] or 0:.0f} %"]
        table.add_row(row["key"], *seconds, *money)
    return Panel(
        table, title="the bill, in seconds and dollars: windfall cost --by queue", border_style="grey37"
    )


def without_foreign_fonts(svg: str) -> str:
    """A picture that loads nothing from elsewhere: whatever monospace font the reader has will do."""
    svg = re.sub(r"@font-face\s*\{[^}]*\}|<!--.*?-->", "", svg, flags=re.DOTALL)
    return re.sub(r"[ \t]*\n\s*\n+", "\n", svg)


def main() -> int:
    """Run the demo and clean up after it, whatever happens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--svg", type=Path, help="also draw the last screen into this file")
    parser.add_argument("--no-browser", action="store_true", help="do not open the page at the end")
    arguments = parser.parse_args()
    console = Console(record=arguments.svg is not None, width=100 if arguments.svg else None)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    good, interrupted = False, False
    # Nothing interrupts before there is somebody to clean up.
    stops = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    data = Path(tempfile.mkdtemp(prefix="windfall-demo-"))
    daemon = Daemon(data)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, stops)
        data.chmod(0o711)
        good = play(console, daemon, browser=not arguments.no_browser and not arguments.svg)
    except KeyboardInterrupt:
        interrupted = True
    except CliError as error:
        console.print(f"the demo stopped: {error}")
    finally:
        for number in stops:
            signal.signal(number, signal.SIG_IGN)  # Once is enough: what was started is stopped now.
        if interrupted:
            console.print("interrupted: stopping what the demo has started")
        daemon.down()
        shutil.rmtree(data, ignore_errors=True)
    if interrupted:
        gone = "and its data directory is removed" if not data.exists() else f"but {data} cannot be removed"
        console.print(f"interrupted: nothing of the demo runs any more, {gone}")
        return INTERRUPTED
    if arguments.svg:
        arguments.svg.write_text(without_foreign_fonts(console.export_svg(title="make demo")))
    console.print("as promised; the data directory is removed" if good else "NOT as promised: see above")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
