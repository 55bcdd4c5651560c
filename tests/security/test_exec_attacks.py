"""`windfall exec` under attack: sessions that must end, revoked keys, jobs that lie in wait for a command."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from tests.acceptance.exec_client import entered_processes
from tests.security.attacked import Attacked, Key
from tests.waiting import wait_until
from windfall.agent.processes import read_stat, snapshot
from windfall.cli.client import Client
from windfall.cli.endpoint import find_endpoint
from windfall.cli.errors import RequestRefused

#: Meets every process that appears in the job's sandbox, as early as it can, and does something to it.
LURKING = """
import os, signal, time
assert os.getpid() < 100, 'this is no sandbox: processes of others would be met'
known = {{int(name) for name in os.listdir('/proc') if name.isdigit()}}
print('begun', flush=True)
until = time.monotonic() + 300
while time.monotonic() < until:
    for name in os.listdir('/proc'):
        if name.isdigit() and int(name) not in known:
            known.add(int(name))
            try:
{attack}
            except OSError:
                pass
"""
STOPPING = "                os.kill(int(name), signal.SIGSTOP)"
#: A command has pipes alone. Sockets are lines of the process that starts it, to the daemon and to the agent.
STEALING = """
                memory = open(f'/proc/{name}/mem', 'rb')
                if b'inside.keeper' in open(f'/proc/{name}/cmdline', 'rb').read():
                    print('STOLEN memory', flush=True)
                for fd in os.listdir(f'/proc/{name}/fd'):
                    if 'socket' in os.readlink(f'/proc/{name}/fd/{fd}'):
                        print('STOLEN socket', flush=True)
"""


@pytest.fixture
def key(attacked: Attacked) -> Iterator[Key]:
    """A key of a second tenant, whose jobs are in a sandbox with either daemon."""
    made = attacked.key("submit", "prey")
    yield made
    attacked.revoke(made)


def a_job(attacked: Attacked, key: Key, script: str = "echo begun; exec sleep 600") -> str:
    """A running job of this key, which has begun to work."""
    job_id = attacked.submitted(attacked.client(key), script)
    attacked.windfall.wait_for([job_id], "RUNNING")
    logs = attacked.windfall.windfall
    wait_until(lambda: "begun" in logs("logs", job_id, check=False).stdout, "the job works")
    return job_id


def lurking(attack: str) -> str:
    program = LURKING.format(attack=attack)
    return f'exec python3 -c "{program}"'


def a_client(attacked: Attacked, key: Key) -> Client:
    return Client(find_endpoint(attacked.windfall.data, {"AWS_ACCESS_KEY_ID": key["AWS_ACCESS_KEY_ID"]}))


def keepers(attacked: Attacked) -> list[int]:
    """The processes that keep sessions of this daemon, and what has not become a command yet."""
    found, agent = [], attacked.windfall.agent_pids()["agent"]
    for stat in snapshot().values():
        parent = read_stat(stat.ppid)
        above = {stat.ppid} if parent is None else {stat.ppid, parent.ppid}
        if agent in above and b"inside.keeper" in _command_line(stat.pid):
            found.append(stat.pid)
    return found


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def wait_for_the_end(attacked: Attacked) -> None:
    wait_until(lambda: not entered_processes(attacked.windfall), "no process of a session is left")


def test_input_that_nobody_reads_does_not_keep_a_session_alive(attacked: Attacked, key: Key):
    job_id, session = a_job(attacked, key), uuid4().hex
    with closing(a_client(attacked, key)) as client:
        client.own("StartExec", jobId=job_id, session=session, command=["sleep", "600"])
        wait_until(lambda: entered_processes(attacked.windfall), "the command runs")
        chunk, taken, before = base64.b64encode(bytes(500_000)).decode(), 0, -1
        while taken != before:
            before = taken
            taken = client.own("WriteExec", session=session, position=taken, content=chunk)["position"]
        client.own("EndExec", session=session)
    wait_for_the_end(attacked)
    attacked.client(key).terminate_job(jobId=job_id, reason="done")


def test_a_revoked_key_has_no_session_any_more(attacked: Attacked):
    """The command ends, and a request that was waiting for its output gets none."""
    key = attacked.key("submit", "prey")
    job_id, session = a_job(attacked, key), uuid4().hex
    answers: list[object] = []

    def read_on() -> None:
        position = 0
        try:
            while True:
                got = client.own_bytes("ReadExec", session=session, position=position)
                answers.append(got)
                position += len(got)
        except RequestRefused as refused:
            answers.append(refused)

    script = "trap '' HUP TERM; while :; do sleep 600; done"
    with closing(a_client(attacked, key)) as client:
        client.own("StartExec", jobId=job_id, session=session, command=["sh", "-c", script])
        reader = threading.Thread(target=read_on)
        reader.start()
        wait_until(lambda: answers and entered_processes(attacked.windfall), "the command runs")
        attacked.revoke(key)
        reader.join(60)
    assert "is not valid" in str(answers[-1]) or "does not know the key" in str(answers[-1])
    # Sooner than a client that is silent is given up; the deadline of the wait is what counts here.
    wait_for_the_end(attacked)
    log = attacked.windfall.log.read_text()
    assert f"session {session} ends, because its key {key['AWS_ACCESS_KEY_ID']} is revoked" in log
    attacked.admin.terminate_job(jobId=job_id, reason="done")


@pytest.mark.parametrize("tty", [False, True])
def test_a_job_that_stops_every_command_keeps_none_of_them(attacked: Attacked, key: Key, tty: bool):
    job_id = a_job(attacked, key, lurking(STOPPING))
    with closing(a_client(attacked, key)) as client:
        for _ in range(6):
            session = uuid4().hex
            client.own("StartExec", jobId=job_id, session=session, command=["sleep", "600"], tty=tty)
            wait_until(lambda: keepers(attacked), "the session has a process")
            client.own("EndExec", session=session)
            wait_until(lambda: not keepers(attacked), "the session has none")
            wait_for_the_end(attacked)
    attacked.client(key).terminate_job(jobId=job_id, reason="done")


def test_a_job_gets_nothing_of_what_starts_a_command(attacked: Attacked, key: Key):
    job_id = a_job(attacked, key, lurking(STEALING))
    with closing(a_client(attacked, key)) as client:
        for _ in range(10):
            session, told = uuid4().hex, b""
            client.own("StartExec", jobId=job_id, session=session, command=["true"])
            while b'"code": 0' not in told:
                told += client.own_bytes("ReadExec", session=session, position=len(told))
            client.own("EndExec", session=session)
    attacked.client(key).terminate_job(jobId=job_id, reason="done")
    assert "STOLEN" not in attacked.log(job_id)
