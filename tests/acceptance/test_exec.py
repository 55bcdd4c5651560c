"""`windfall exec` against a real daemon: in processes and sandboxes, at a terminal and between pipes."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from contextlib import closing
from typing import Any

import pytest

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.acceptance.exec_client import entered_processes, environment, piped, terminal, wait_for_program
from tests.acceptance.test_job_users import key_client
from tests.waiting import wait_until
from windfall.agent.processes import read_stat, snapshot
from windfall.cli.client import Client
from windfall.cli.endpoint import find_endpoint
from windfall.cli.errors import RequestRefused

IS_ROOT = os.geteuid() == 0
#: What of a process shows its rights and its place; a sandbox's own numbers of processes are left out.
RIGHTS = "grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp|Umask)' /proc/{0}/status; readlink /proc/{0}/ns/*"


def a_job(running: RunningWindfall, name: str, script: str, **more: Any) -> str:
    """A running job of one process that says when it is ready; the answer is its id."""
    batch = running.client("batch")
    if not batch.describe_job_queues(jobQueues=["q"])["jobQueues"]:
        a_queue(running)
    a_definition(batch, name, "sh", "-c", script, **more)
    job_id = str(batch.submit_job(jobName=name, jobQueue="q", jobDefinition=name)["jobId"])
    running.wait_for([job_id], "RUNNING")
    return job_id


@pytest.fixture(scope="module")
def train(windfall) -> str:
    """A job with a GPU that does nothing for long."""
    return a_job(windfall, "train", "cd /usr; export HIDDEN=1; exec sleep 600", gpus=1, memory_mib=256)


def test_a_command_is_where_the_job_is(windfall, train):
    script = "pwd; echo $CUDA_VISIBLE_DEVICES; echo $AWS_BATCH_JOB_ID; echo $WINDFALL_ATTEMPT; id -u"
    done = piped(windfall, "train", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    directory, gpus, job_id, token, uid = done.stdout.decode().split("\n")[:5]
    assert (directory, job_id, token) == ("/usr", train, f"{train}#1")
    assert gpus.startswith("GPU-simulated-")
    assert uid == ("65534" if IS_ROOT else str(os.geteuid()))


def test_it_has_no_more_than_the_job_has(windfall):
    a_job(windfall, "plain", f"{RIGHTS.format('self')}; echo ready; exec sleep 600")
    wait_until(lambda: "ready" in windfall.windfall("logs", "plain", check=False).stdout, "the job says so")
    theirs = windfall.windfall("logs", "plain").stdout.replace("ready\n", "")
    done = piped(windfall, "plain", "--", "sh", "-c", RIGHTS.format("self"))
    assert done.stdout.decode() == theirs
    opened = piped(
        windfall, "plain", "--", "sh", "-c", "ls /proc/self/fd; cat /proc/self/environ | tr '\\0' '\\n'"
    )
    lines = opened.stdout.decode().split("\n")
    assert lines[:4] == ["0", "1", "2", "3"]  # The last one is the listing's own.
    assert lines[4].count("=") == 1, "no further descriptor"
    assert not any(line.startswith(("PYTHONPATH", "WINDFALL_WARDEN", "WINDFALL_RUNTIME")) for line in lines)


def test_it_is_under_the_limits_of_the_job(windfall, train):
    if "cgroup" not in windfall.windfall("status").stdout:
        pytest.skip("no cgroup can be made here")
    job = windfall.client("batch").describe_jobs(jobs=[train])["jobs"][0]
    assert "cgroup" in job["tags"]["windfall:isolation"]
    groups = piped(windfall, "train", "--", "cat", "/proc/self/cgroup").stdout.decode()
    (own,) = (pid for pid, stat in snapshot().items() if _token(pid) == f"{train}#1" and stat.session == pid)
    with open(f"/proc/{own}/cgroup") as file:
        assert groups == file.read()


def _token(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = dict(one.partition(b"=")[::2] for one in file.read().split(b"\0"))
    except OSError:
        return None
    return variables.get(b"WINDFALL_ATTEMPT", b"").decode()


@pytest.mark.usefixtures("train")
def test_bytes_go_through_unchanged_in_both_directions(windfall):
    feed = bytes(range(256)) * 20_000
    done = piped(windfall, "train", "--", "cat", feed=feed)
    assert (done.returncode, done.stdout == feed, done.stderr) == (0, True, b"")


@pytest.mark.usefixtures("train")
def test_output_and_errors_are_apart_and_the_exit_code_is_the_commands(windfall):
    done = piped(windfall, "train", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.stdout, done.stderr, done.returncode) == (b"out\n", b"err\n", 7)
    assert piped(windfall, "train", "--", "sh", "-c", "kill -9 $$").returncode == 137
    assert piped(windfall, "train", feed=b"echo from a script\n").stdout == b"from a script\n"


@pytest.mark.usefixtures("train")
def test_a_program_that_is_not_there_or_cannot_be_run(windfall):
    missing = piped(windfall, "train", "--", "no-such-program", "-x")
    assert missing.returncode == 127
    assert b"there is no program 'no-such-program' inside the job" in missing.stderr
    closed = piped(windfall, "train", "--", "/etc/passwd")
    assert closed.returncode == 126
    assert b"permission denied" in closed.stderr


@pytest.mark.usefixtures("train")
def test_much_output_goes_through_a_pipe_and_fills_nobodys_memory(windfall):
    """200 MB to a reader that is slower at first than what writes: daemon and agent hold little of it."""
    size = 200_000_000
    before = _memory_of(windfall)
    reader = subprocess.Popen(
        [*windfall.command, "exec", "train", "--", "head", "-c", str(size), "/dev/zero"],
        stdout=subprocess.PIPE,
        env=environment(windfall),
        cwd="/",
    )
    with reader:
        assert reader.stdout is not None
        found = hashlib.sha256(reader.stdout.read(1))
        grown = [_memory_of(windfall) - before]
        while part := reader.stdout.read(1 << 20):
            found.update(part)
            grown.append(_memory_of(windfall) - before)
    assert reader.returncode == 0
    assert found.hexdigest() == hashlib.sha256(bytes(size)).hexdigest()
    assert max(grown) < 60 << 20


def _memory_of(running: RunningWindfall) -> int:
    assert running.process is not None
    pids = [running.process.pid, running.agent_pids()["agent"]]
    return sum(stat.resident_bytes for stat in map(read_stat, pids) if stat is not None)


@pytest.mark.usefixtures("train")
def test_a_reader_that_leaves_ends_the_command(windfall):
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(windfall.command)} exec train -- yes | head -1; echo ${{PIPESTATUS[@]}}"],
        capture_output=True,
        env=environment(windfall),
        timeout=90,
        check=False,
    )
    assert done.stdout == b"y\n141 0\n"
    wait_until(lambda: not entered_processes(windfall), "no process of the session is left")


@pytest.mark.usefixtures("train")
def test_what_it_leaves_running_ends_with_it(windfall):
    left = "sleep 601 & (setsid sleep 602 &); (trap '' HUP TERM; sleep 603) & (yes >&2 &); echo done"
    done = piped(windfall, "train", "--", "sh", "-c", left)
    assert done.returncode == 0
    assert done.stdout == b"done\n"
    assert not entered_processes(windfall)


def test_errors_say_what_to_do(windfall, train):
    batch = windfall.client("batch")
    a_definition(batch, "short", "true")
    ended = batch.submit_job(jobName="short", jobQueue="q", jobDefinition="short")["jobId"]
    windfall.wait_for([ended])
    refused = piped(windfall, "short")
    assert refused.returncode == 1
    assert b"has ended (SUCCEEDED); `windfall logs" in refused.stderr
    a_definition(batch, "huge", "true", gpus=100)
    batch.submit_job(jobName="huge", jobQueue="q", jobDefinition="huge")
    assert b"see `windfall why" in piped(windfall, "huge").stderr
    a_definition(batch, "many", "sleep", "600")
    array = batch.submit_job(jobName="many", jobQueue="q", jobDefinition="many", arrayProperties={"size": 2})[
        "jobId"
    ]
    windfall.wait_for([f"{array}:0", f"{array}:1"], "RUNNING")
    assert f"name one, such as {array}:0".encode() in piped(windfall, "many").stderr
    child = piped(windfall, "many:1", "--", "sh", "-c", "echo $AWS_BATCH_JOB_ARRAY_INDEX")
    assert child.stdout == b"1\n"
    assert b"there is no job 'nothing'" in piped(windfall, "nothing").stderr
    assert b"There is no job" in piped(windfall, train, "--node", "3").stderr


# --- at a terminal ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("train")
def test_a_shell_at_a_terminal(windfall):
    with terminal(windfall, "train", SHELL="/bin/no-such-shell") as screen:
        screen.type("PS1='in''side> '; tty; stty size; echo $TERM; pwd\n")
        screen.until("/dev/pts/")
        screen.until("30 100")
        screen.until("xterm-256color")
        screen.until("inside> ")
        screen.resize(40, 120)
        wait_until(lambda: screen.shows_size("40 120"), "the new size is known inside")
        screen.type("sleep 555; echo after-$?\n")
        screen.until("sleep 555")
        wait_for_program(windfall, "sleep", "555")
        screen.type("\x03")
        screen.until("inside> ")
        screen.type("echo still-$((40 + 2)); exit 5\n")
        screen.until("still-42")
        assert screen.wait() == 5
        assert screen.is_as_before
    assert not entered_processes(windfall)


def test_the_jobs_end_ends_a_shell(windfall):
    job_id = a_job(windfall, "brief", "exec sleep 600")
    with terminal(windfall, job_id) as screen:
        screen.type("echo rea''dy\n")
        screen.until("ready")
        windfall.windfall("terminate", job_id)
        screen.until("the job has ended")
        assert screen.wait() == 1
        assert screen.is_as_before
    wait_until(lambda: not entered_processes(windfall), "no process of the session is left")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_client_that_is_gone_takes_its_processes_along_and_not_the_job(windfall, train, number):
    with terminal(windfall, "train") as screen:
        screen.type("trap '' HUP TERM; echo rea''dy\n")
        screen.until("ready")
        assert entered_processes(windfall)
        screen.process.send_signal(number)
        screen.process.wait(60)
        if number != signal.SIGKILL:
            assert screen.is_as_before
        wait_until(lambda: not entered_processes(windfall), "no process of the session is left")
    (job,) = windfall.wait_for([train], "RUNNING")
    assert len(job["attempts"]) == 0


def test_an_exec_never_counts_as_the_job(windfall):
    """Its memory does not end the job, nor does its exit code or the end of its processes."""
    job_id = a_job(windfall, "small", "exec sleep 600", memory_mib=64)
    greedy = "(head -c 300000000 /dev/zero; while echo; do sleep 1; done) | tail -c 290000000"
    assert piped(windfall, job_id, "--", "sh", "-c", greedy).returncode == 137
    assert piped(windfall, job_id, "--", "false").returncode == 1
    (job,) = windfall.wait_for([job_id], "RUNNING")
    assert job["status"] == "RUNNING"


# --- death -----------------------------------------------------------------------------------------------------------


def test_the_death_of_the_agent_or_the_daemon_ends_the_session_and_not_the_job(fresh):
    running = fresh()
    job_id = a_job(running, "train", "exec sleep 600")
    with terminal(running, "train") as screen:
        screen.type("echo rea''dy\n")
        screen.until("ready")
        running.kill_agent()
        screen.until("the job goes on")
        assert screen.wait() == 1
    wait_until(lambda: not entered_processes(running), "no process of the session is left")
    wait_until(lambda: piped(running, "train", "--", "true").returncode == 0, "the next agent lets people in")
    with terminal(running, "train") as screen:
        screen.type("echo rea''dy\n")
        screen.until("ready")
        running.kill_daemon()
        wait_until(lambda: not entered_processes(running), "no process of the session is left")
        screen.until("windfall: the session has ended")
        assert screen.wait() == 1
        assert screen.is_as_before
    running.up()
    (job,) = running.wait_for([job_id], "RUNNING")
    assert job["jobId"] == job_id


# --- who may ---------------------------------------------------------------------------------------------------------


def _a_key(running: RunningWindfall, *options: str) -> dict[str, str]:
    made = json.loads(running.windfall("keys", "create", "--json", *options).stdout)
    return {"AWS_ACCESS_KEY_ID": made["accessKeyId"]}


def _enter(running: RunningWindfall, key: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    """The exit code, output and errors of a command with this key."""
    done = piped(running, *arguments, **key)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_who_may_enter_which_job(fresh):
    running = fresh()
    a_queue(running)
    viewer = _a_key(running, "--role", "read")
    writer = _a_key(running, "--role", "submit")
    stranger = _a_key(running, "--role", "submit", "--tenant", "vision")
    admins = a_job(running, "admins", "exec sleep 600")
    own = key_client(running)
    a_definition(own, "own", "sleep", "600")
    job_id = str(own.submit_job(jobName="own", jobQueue="q", jobDefinition="own")["jobId"])
    running.wait_for([job_id], "RUNNING")
    command = ("--", "sh", "-c", "echo inside; echo s3cr3t >/dev/null")
    assert "needs submit" in _enter(running, viewer, job_id, *command)[2]
    assert _enter(running, writer, job_id, *command)[1] == "inside\n"
    never = "00000000-0000-4000-8000-000000000000"
    unknown = _enter(running, stranger, never, *command)
    assert _enter(running, stranger, job_id, *command) == (1, "", unknown[2].replace(never, job_id))
    assert "There is no job" in unknown[2]
    assert "only an admin key may enter it" in _enter(running, writer, admins, *command)[2]
    assert piped(running, job_id, *command).stdout == b"inside\n"
    told = running.log.read_text()
    assert f"exec: key {writer['AWS_ACCESS_KEY_ID']} (tenant default) runs 'sh' in job {job_id} (own)" in told
    assert "s3cr3t" not in told
    assert stranger["AWS_ACCESS_KEY_ID"] not in told


def test_accounts_enter_their_own_jobs(fresh, require):
    require(IS_ROOT, "only root runs jobs as other users")
    running = fresh()
    a_queue(running)
    alice = _a_key(running, "--role", "submit", "--user", "daemon")
    nobody = _a_key(running, "--role", "submit")
    batch = key_client(running, "--user", "daemon")
    a_definition(batch, "own", "sleep", "600")
    job_id = str(batch.submit_job(jobName="own", jobQueue="q", jobDefinition="own")["jobId"])
    running.wait_for([job_id], "RUNNING")
    assert _enter(running, alice, job_id, "--", "id", "-un")[1] == "daemon\n"
    code, said, why = _enter(running, nobody, job_id, "--", "id", "-un")
    assert (code, said) == (1, "")
    assert "runs as the account daemon" in why


def test_a_session_belongs_to_the_key_that_opened_it_and_there_is_a_limit_to_them(windfall, train):
    first = find_endpoint(windfall.data, {})
    other = _a_key(windfall, "--role", "admin")
    ids = [f"{number:032x}" for number in range(9)]
    with closing(Client(first)) as client, closing(Client(find_endpoint(windfall.data, other))) as stranger:
        for session in [*ids, ids[0]]:  # One comes twice, which changes nothing.
            client.own("StartExec", jobId=train, session=session, command=["sleep", "600"])
        last = b""
        while b"sessions are open" not in last:
            last += client.own_bytes("ReadExec", session=ids[8], position=len(last))
        with pytest.raises(RequestRefused, match="There is no such session"):
            stranger.own("WriteExec", session=ids[0], position=0, content="")
        wait_until(lambda: len(entered_processes(windfall)) == 8, "all others run")
        for session in ids:
            client.own("EndExec", session=session)
    wait_until(lambda: not entered_processes(windfall), "no process of the sessions is left")
