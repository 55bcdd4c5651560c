"""`make demo-many`: a training loses its machine mid-step, and ends with the same bits on another one.

Three machines are made of namespaces on this one, each with an address, a disk and a real sshd of its own. A real
daemon adds them by ssh, and keeps checkpoints in its S3 server, which they reach over the network. The same training
runs twice, on a machine each. Every process of the first one's machine is killed. At the end both must have the same
weights, bit for bit. Everything is removed. Needs root, for the namespaces. The machines see this checkout and its
Python, so that the training needs no installation there.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from daemon_of_its_own import Daemon
from demo import HERE, INTERRUPTED, TEXTS, Training, digest, log_lines
from rich.console import Console
from rich.text import Text

from tests.hosts_in_a_box import HostsInABox, missing_host_part
from windfall.cli.client import Client
from windfall.cli.endpoint import find_endpoint
from windfall.cli.errors import CliError
from windfall.engines.hosts.ssh import kept_connections

MACHINES = 3
STEPS = 900
#: After so many seconds of silence a machine is lost. It is the shortest time that the setting allows.
LOST_AFTER_S = 20
#: The machine is killed this many steps after its first checkpoint became safe, so that work is done again.
STEPS_TO_LOSE = 40
#: What is not over after this time has failed.
OVER_WITHIN_S = 300.0


class Show:
    """The daemon, its machines and what happened, told line by line."""

    def __init__(self, console: Console, hosts: HostsInABox, client: Client) -> None:
        self.console, self.hosts, self.client = console, hosts, client
        self.began = time.monotonic()

    def say(self, text: str, style: str = "") -> None:
        """Tell what has happened, and when."""
        stamp = f"{time.monotonic() - self.began:5.1f} s  "
        self.console.print(Text.assemble((stamp, "grey50"), (text, style)))

    def add_machines(self, data: Path) -> None:
        """Add all hosts at once: each gets Windfall and an agent over ssh."""

        def add(number: int) -> None:
            slow = Client(find_endpoint(data), timeout_s=120)
            added = slow.own("AddHost", destination=self.hosts.name(number), gpus="simulated:1")
            self.say(f"{added['name']} at {self.hosts.address(number)} is added: its agent answers")

        with ThreadPoolExecutor(MACHINES) as pool:
            list(pool.map(add, range(MACHINES)))

    def declare(self) -> None:
        """An environment of hosts alone, a queue, and the training with one (simulated) GPU."""
        self.client.batch(
            "CreateComputeEnvironment",
            computeEnvironmentName="machines",
            type="MANAGED",
            computeResources={
                "type": "EC2",
                "minvCpus": 0,
                "maxvCpus": 64,
                "instanceTypes": ["optimal"],
                "subnets": ["subnet-1"],
                "instanceRole": "ecsInstanceRole",
            },
            tags={"windfall:engine": "hosts"},
        )
        order = [{"order": 1, "computeEnvironment": "machines"}]
        self.client.batch(
            "CreateJobQueue", jobQueueName="machines", priority=1, computeEnvironmentOrder=order
        )
        needs = {"VCPU": "1", "MEMORY": "512", "GPU": "1"}
        self.client.batch(
            "RegisterJobDefinition",
            jobDefinitionName="train",
            type="container",
            containerProperties={
                "image": "windfall/host",
                "command": [
                    sys.executable,
                    str(HERE / "spot-training" / "train.py"),
                    str(STEPS),
                    *map(str, TEXTS),
                ],
                "environment": [{"name": "PACE_S", "value": "0.016"}],
                "resourceRequirements": [{"type": kind, "value": value} for kind, value in needs.items()],
            },
            retryStrategy={"attempts": 3},
        )

    def submit(self, name: str) -> Training:
        """Submit the training, with a checkpoint directory that is kept safe."""
        answer = self.client.batch(
            "SubmitJob",
            jobName=name,
            jobQueue="machines",
            jobDefinition="train",
            tags={"windfall:checkpoint": "true"},
        )
        return Training(name, str(answer["jobId"]))

    def machine_of(self, training: Training) -> int | None:
        """The machine on which a process of the training runs: its processes are asked, not the daemon."""
        wanted = f"AWS_BATCH_JOB_ID={training.job_id}".encode()
        for number in range(MACHINES):
            for pid in self.hosts.pids(number):
                try:
                    if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                        return number
                except OSError:
                    continue
        return None

    def play(self, struck: Training, reference: Training) -> list[int]:
        """Follow both to their ends and kill the first one's machine; returns the machines that it ran on."""
        seen: list[int] = []
        killed: int | None = None
        while not (struck.ended and reference.ended):
            if time.monotonic() - self.began > OVER_WITHIN_S:
                self.say(f"not over after {OVER_WITHIN_S:g} s", "bold red")
                break
            for training in (struck, reference):
                for text, style in training.look(self.client):
                    self.say(text, style)
            number = self.machine_of(struck)
            if number is not None and number not in seen:
                seen.append(number)
                self.say(f"{struck.name} runs on {self.hosts.name(number)}", "bold")
            if killed is None and number is not None and _is_due(struck):
                killed = number
                self.hosts.kill(number)
                name = self.hosts.name(number)
                self.say(f"every process of {name} is killed, at step {struck.step} or after", "bold red")
                self.say(f"{name} is lost when it has been silent for {LOST_AFTER_S} s")
            time.sleep(0.2)
        for training in (struck, reference):
            self.say(f"{training.name} is {training.job['status']}", "bold green" if training.ended else "")
        return seen


def _is_due(training: Training) -> bool:
    """Whether steps would be lost now: some were made after the last checkpoint that is safe."""
    attempt = training.attempts[-1] if training.attempts else {}
    saved = attempt.get("checkpoint")
    return bool(saved and saved["step"] and training.step >= saved["step"] + STEPS_TO_LOSE)


def perform(console: Console, place: Path, cleanup: ExitStack) -> bool:
    """Play it through; returns whether all went as promised."""
    console.print(f"making {MACHINES} machines of namespaces, and a daemon with an S3 server")
    see = dict.fromkeys((HERE.parent, Path(sys.prefix), Path(sys.base_prefix)))
    data = place / "data"
    # The daemon's ssh keeps connections for a minute; they end with the machines, and their directory stays.
    cleanup.callback(shutil.rmtree, kept_connections(str(data)), ignore_errors=True)
    hosts = cleanup.enter_context(
        HostsInABox(MACHINES, place, see=[path for path in see if path != Path("/usr")])
    )
    daemon = Daemon(
        data,
        ("--gpus", "none", "--s3", "--s3-listen", hosts.gateway),
        {
            "WINDFALL_SSH_CONFIG": str(hosts.ssh_config),
            "WINDFALL_LOST_AFTER_S": str(LOST_AFTER_S),
            "WINDFALL_RUNTIME": "process",
        },
    )
    cleanup.callback(daemon.down)
    show = Show(console, hosts, daemon.up())
    show.say(f"windfall is listening on {show.client.endpoint.url}")
    show.say(f"its S3 server is listening on {hosts.gateway} too, for the machines")
    show.add_machines(daemon.data)
    show.declare()
    struck, reference = show.submit("training"), show.submit("reference")
    show.say("the same training is submitted twice; nobody touches the reference")
    machines = show.play(struck, reference)
    for training in (struck, reference):
        if training.job["status"] != "SUCCEEDED":
            show.say(f"{training.name} is {training.job['status']}; its log ends:", "bold red")
            console.print("\n".join(log_lines(show.client, training)[-20:]), markup=False)
    digests = [digest(show.client, training) for training in (struck, reference)]
    same = digests[0] == digests[1] != "none"
    names = " and then on ".join(hosts.name(number) for number in machines)
    console.print("\nsha256 of the final weights", style="bold")
    for training, text in zip((struck, reference), digests, strict=True):
        console.print(f"  {training.name:9}  {text}", style="green" if same else "red", highlight=False)
    console.print(
        f"the training ran on {names}: {'the same bits' if same else 'DIFFERENT weights'}", highlight=False
    )
    return same and len(machines) == 2 and len(reference.attempts) == 1


def main() -> int:
    """Run the demo and clean up after it, whatever happens."""
    if missing := missing_host_part():
        print(f"make demo-many cannot run here: {missing}")
        return 1
    console = Console()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    good, interrupted = False, False
    place = Path(tempfile.mkdtemp(prefix="windfall-demo-many-"))
    with ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, place, ignore_errors=True)
        try:
            place.chmod(0o711)
            good = perform(console, place, cleanup)
        except KeyboardInterrupt:
            interrupted = True
            console.print("interrupted: stopping what the demo has started")
        except CliError as error:
            console.print(f"the demo stopped: {error}", markup=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # Once is enough: what was started is stopped now.
    gone = "is removed" if not place.exists() else f"cannot be removed: see {place}"
    if interrupted:
        console.print(f"interrupted: nothing of the demo runs any more, and what it wrote {gone}")
        return INTERRUPTED
    console.print(f"{'as promised' if good else 'NOT as promised: see above'}; what the demo wrote {gone}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
