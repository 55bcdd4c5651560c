"""Warm workers under a real daemon: children that share a process, and what becomes of them when things are killed.

The function (or the program) writes down who ran what in which process, so that Windfall need not be believed.
"""

from __future__ import annotations

import collections
import contextlib
import getpass
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.acceptance.daemon import a_definition, a_queue
from tests.waiting import wait_until

FUNCTION = """
import os, signal, sys, time
from pathlib import Path

HERE = Path(os.environ["LEDGER"])
BEGAN = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
ME = f"{os.readlink('/proc/self/ns/pid')}/{os.getpid()}/{BEGAN}"
print("imported", flush=True)

def note(name, index):
    told = [os.environ[f"AWS_BATCH_JOB_{name}"] for name in ("ARRAY_INDEX", "ATTEMPT")]
    with open(HERE / name, "a") as file:
        print(index, *told, ME, file=file)

def work(index):
    note("started", index)
    print("this is child", index)
    os.system("echo from below")
    if index == 1:
        return 3
    if index == 2:
        raise ValueError("no such index")
    if index == 3:
        sys.exit("leaving")
    note("ended", index)

def gated(index):
    note("started", index)
    while not (HERE / "gate").exists():
        time.sleep(0.02)
    note("ended", index)

def killed_once(index):
    note("started", index)
    if index == 1 and os.environ["AWS_BATCH_JOB_ATTEMPT"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    note("ended", index)

def listens(index):
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(1))
    note("started", index)
    while not told:
        time.sleep(0.02)
    note("told", index)
    return 9
"""

LINES = r"""
while read -r line; do
    index=${line#*'"index":'}; index=${index%%,*}
    echo "$index $(readlink /proc/$$/ns/pid)/$$/$(cut -d ' ' -f 22 /proc/$$/stat)" >> "$LEDGER/started"
    echo "shell child $index"; echo "and its error" >&2
    echo "{\"done\": true, \"exit_code\": $((index == 2 ? 7 : 0))}" >&3
done
"""


class Ledger:
    """A directory that the jobs' user may write to, with the module that they import."""

    def __init__(self, root: Path) -> None:
        self.path = root / "ledger"
        self.path.mkdir()
        self.path.chmod(0o777)
        (self.path / "tasks.py").write_text(FUNCTION)

    def lines(self, name: str) -> list[list[str]]:
        file = self.path / name
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def workers(self) -> set[str]:
        """The processes that have begun a child: each its PID namespace, PID and start.

        A sandbox has a namespace for itself, whose number is used again when it is gone.
        """
        return {line[-1] for line in self.lines("started")}


def alive() -> set[str]:
    """All processes of this host, named as the ledger names them."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            numbers = re.search(r"^NSpid:.*?(\d+)$", (process / "status").read_text(), re.MULTILINE)
            assert numbers is not None
            began = (process / "stat").read_text().rpartition(")")[2].split()[19]
            found.add(f"{(process / 'ns' / 'pid').readlink()}/{numbers[1]}/{began}")
    return found


def submit(windfall, batch, ledger, worker, size, *, command=("python3",), gpus=0, name="warm", **more):
    """An array whose children run in warm workers; on one vCPU at a time unless the queue has more."""
    container = {
        "environment": [
            {"name": "LEDGER", "value": str(ledger.path)},
            {"name": "PYTHONPATH", "value": str(ledger.path)},
            {"name": "PATH", "value": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
        ]
    }
    a_definition(batch, name, *command, gpus=gpus, memory_mib=256, container=container)
    return batch.submit_job(
        jobName=name,
        jobQueue="q",
        jobDefinition=name,
        arrayProperties={"size": size},
        tags={"windfall:worker": worker},
        **more,
    )["jobId"]


def log_of(windfall, child):
    logs = windfall.client("logs")
    stream = child["container"]["logStreamName"]
    events = logs.get_log_events(logGroupName="/aws/batch/job", logStreamName=stream, startFromHead=True)
    return [event["message"] for event in events["events"]]


def children(windfall, job_id, size):
    windfall.wait_for([job_id])
    return windfall.wait_for([f"{job_id}:{index}" for index in range(size)])


def test_children_share_a_process_and_have_logs_and_codes_of_their_own(fresh):
    windfall = fresh("--vcpus", "1", "--memory-mib", "4096", "--gpus", "none")
    ledger, batch = Ledger(windfall.root), a_queue(windfall)
    job_id = submit(windfall, batch, ledger, "tasks:work", 6)
    ended = children(windfall, job_id, 6)
    assert [child["container"]["exitCode"] for child in ended] == [0, 3, 1, 1, 0, 0]
    assert len(ledger.workers()) == 1, "one vCPU, one worker"
    assert [line[:3] for line in ledger.lines("started")] == [[str(i), str(i), "1"] for i in range(6)]
    assert log_of(windfall, ended[0]) == ["imported", "this is child 0", "from below"]
    assert log_of(windfall, ended[4]) == ["this is child 4", "from below"]
    failed = log_of(windfall, ended[2])
    assert failed[0] == "this is child 2"
    assert failed[-1] == "ValueError: no such index"
    assert "Traceback (most recent call last):" in failed
    assert log_of(windfall, ended[3])[-1] == "leaving"


def test_a_shell_program_serves_lines(fresh):
    windfall = fresh("--vcpus", "1", "--memory-mib", "4096", "--gpus", "none")
    ledger, batch = Ledger(windfall.root), a_queue(windfall)
    job_id = submit(windfall, batch, ledger, "lines", 4, command=("sh", "-c", LINES))
    ended = children(windfall, job_id, 4)
    assert [child["container"]["exitCode"] for child in ended] == [0, 0, 7, 0]
    assert [line[0] for line in ledger.lines("started")] == ["0", "1", "2", "3"]
    assert len(ledger.workers()) == 1
    assert log_of(windfall, ended[3]) == ["shell child 3", "and its error"]


SIZE = 6
#: So many at once, each with a GPU of its own.
AT_ONCE = 2
OPTIONS = ("--vcpus", "8", "--memory-mib", "8192", "--gpus", f"simulated:{AT_ONCE}")


def ran(ledger, name="started"):
    """How often each child and attempt wrote its line."""
    return collections.Counter((line[0], line[2]) for line in ledger.lines(name))


def once(size):
    return collections.Counter({(str(index), "1"): 1 for index in range(size)})


@pytest.mark.parametrize("strike", ["daemon", "agent", "both"])
def test_nothing_is_lost_and_nothing_runs_twice_when_parts_of_windfall_are_killed(fresh, strike):
    windfall = fresh(*OPTIONS)
    ledger, batch = Ledger(windfall.root), a_queue(windfall)
    job_id = submit(windfall, batch, ledger, "tasks:gated", SIZE, gpus=1)
    wait_until(lambda: len(ledger.workers()) == AT_ONCE, "a child runs on each GPU")
    if strike != "daemon":
        windfall.kill_agent()
    if strike != "agent":
        windfall.kill_daemon()
        windfall.up()
    (ledger.path / "gate").touch()
    ended = children(windfall, job_id, SIZE)
    assert [child["status"] for child in ended] == ["SUCCEEDED"] * SIZE
    assert ran(ledger) == ran(ledger, "ended") == once(SIZE)
    if strike == "daemon":
        assert len(ledger.workers()) == AT_ONCE, "the workers have noticed nothing"


def test_a_worker_that_dies_fails_one_attempt_and_the_child_is_tried_again(fresh):
    windfall = fresh(*OPTIONS)
    ledger, batch = Ledger(windfall.root), a_queue(windfall)
    more = {"retryStrategy": {"attempts": 2}}
    job_id = submit(windfall, batch, ledger, "tasks:killed_once", 4, gpus=1, **more)
    ended = children(windfall, job_id, 4)
    assert [child["status"] for child in ended] == ["SUCCEEDED"] * 4
    assert [attempt["container"]["exitCode"] for attempt in ended[1]["attempts"]] == [137, 0]
    assert ran(ledger, "ended") == collections.Counter(
        {("0", "1"): 1, ("1", "2"): 1, ("2", "1"): 1, ("3", "1"): 1}
    )


def test_terminating_a_child_is_heard_by_the_function_and_spares_the_others(fresh):
    windfall = fresh(*OPTIONS)
    ledger, batch = Ledger(windfall.root), a_queue(windfall)
    job_id = submit(windfall, batch, ledger, "tasks:listens", AT_ONCE, gpus=1)
    wait_until(lambda: len(ledger.workers()) == AT_ONCE, "both children run")
    batch.terminate_job(jobId=f"{job_id}:0", reason="enough of it")
    [stopped] = windfall.wait_for([f"{job_id}:0"])
    assert (stopped["status"], stopped["statusReason"]) == ("FAILED", "enough of it")
    assert [line[0] for line in ledger.lines("told")] == ["0"]
    [other] = batch.describe_jobs(jobs=[f"{job_id}:1"])["jobs"]
    assert other["status"] == "RUNNING"
    batch.terminate_job(jobId=job_id, reason="and of the rest")
    windfall.wait_for([job_id])


def test_another_array_takes_over_the_gpus_and_no_process_of_the_first_holds_them(fresh):
    windfall = fresh(*OPTIONS)
    ledger, batch = Ledger(windfall.root), a_queue(windfall)
    windfall.wait_for([submit(windfall, batch, ledger, "tasks:work", 4, gpus=1, name="first")])
    before = ledger.workers()
    windfall.wait_for(
        [submit(windfall, batch, ledger, "tasks:gated", AT_ONCE, gpus=1, name="second")], "RUNNING", "PENDING"
    )
    wait_until(lambda: len(ledger.workers() - before) == AT_ONCE, "both children of the second run")
    assert not before & alive()
    (ledger.path / "gate").touch()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"arrayProperties": {}}, "is for the children of an array job"),
        ({"tags": {"windfall:git": "https://host/team/code.git@main"}}, "goes with none of"),
    ],
)
def test_what_cannot_be_kept_warm_is_refused_at_submit(windfall, more, words):
    name = f"refused-{words[:2].strip()}"
    batch = a_queue(windfall, name)
    a_definition(batch, name, "python3")
    request = {"jobName": "x", "jobQueue": name, "jobDefinition": name, "arrayProperties": {"size": 2}}
    request |= {key: value for key, value in more.items() if key != "tags"}
    if not request["arrayProperties"]:
        del request["arrayProperties"]
    with pytest.raises(ClientError, match=words) as refused:
        batch.submit_job(**request, tags={"windfall:worker": "a:b", **more.get("tags", {})})
    assert refused.value.response["Error"]["Code"] == "ClientException"


ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"```(?:sh|python|c)\n(?:# |/\* )(lines\.\w+)(?: \*/)?\n(.*?)```", re.DOTALL)
PROGRAMS = dict(BLOCK.findall((ROOT / "docs" / "warm-workers.md").read_text()))


# Windfall itself needs no C compiler anywhere, so the tests do not ask for one either.
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "lines.c" or shutil.which("cc")])
def test_the_programs_of_the_page_serve_an_array(fresh, name):
    windfall = fresh("--vcpus", "1", "--memory-mib", "4096", "--gpus", "none")
    ledger, batch = Ledger(windfall.root), a_queue(windfall)
    program = ledger.path / name
    program.write_text(PROGRAMS[name])
    program.chmod(0o644)
    if name == "lines.c":
        subprocess.run(["cc", "-o", ledger.path / "lines", program], check=True)
    command = {"lines.sh": ("sh", str(program)), "lines.py": ("/usr/bin/python3", str(program))}
    job_id = submit(
        windfall, batch, ledger, "lines", 3, command=command.get(name, (str(ledger.path / "lines"),))
    )
    ended = children(windfall, job_id, 3)
    assert [child["container"]["exitCode"] for child in ended] == [0, 0, 0]
    assert [log_of(windfall, child) for child in ended] == [[f"working on {index}"] for index in range(3)]


def test_the_example_runs_as_its_page_says(fresh):
    # As this user: the example needs numpy, which the tests' own Python has.
    windfall = fresh(
        "--vcpus", "1", "--memory-mib", "4096", "--gpus", "none", "--job-user", getpass.getuser()
    )
    batch = a_queue(windfall)
    windfall.windfall("image", "add", "blur", "--dir", str(ROOT / "examples" / "warm-workers"))
    a_definition(batch, "blur", sys.executable, memory_mib=512, container={"image": "blur"})
    job_id = batch.submit_job(
        jobName="blur",
        jobQueue="q",
        jobDefinition="blur",
        arrayProperties={"size": 3},
        parameters={"windfall-worker": "tasks:blur"},
    )["jobId"]
    ended = children(windfall, job_id, 3)
    for index, child in enumerate(ended):
        [line] = log_of(windfall, child)
        assert line.startswith(f"{job_id}:{index}: deviation 0.28")


def test_agents_that_are_killed_again_and_again_run_no_child_twice(fresh):
    size = 120
    windfall = fresh(*OPTIONS)
    ledger, batch = Ledger(windfall.root), a_queue(windfall)
    job_id = submit(
        windfall, batch, ledger, "tasks:killed_once", size, gpus=1, retryStrategy={"attempts": 10}
    )
    for part in range(1, 5):
        wait_until(lambda part=part: len(ledger.lines("ended")) >= size * part // 5, f"part {part} is done")
        windfall.kill_agent()
    [array] = windfall.wait_for([job_id])
    assert array["arrayProperties"]["statusSummary"]["SUCCEEDED"] == size
    # Children whose agent died before their worker was told of them are tried again, and have done nothing before.
    assert collections.Counter(line[0] for line in ledger.lines("ended")) == collections.Counter(
        {str(index): 1 for index in range(size)}
    )
