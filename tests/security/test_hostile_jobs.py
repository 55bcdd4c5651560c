"""A job that means harm: it reads, writes and signals all that it can find, and finds nothing of the daemon's."""

from __future__ import annotations

import os

import pytest

from tests.security.attacked import Attacked

#: What lies in the data directory and is nobody's business but the daemon's.
PRIVATE = (
    "keys.json",
    "store/windfall.db",
    "objects.json",
    "agent/journal",
    "agent/agent.sock",
    "secrets",
    "logs",
)


@pytest.mark.parametrize("name", PRIVATE)
def test_the_daemons_own_files_cannot_be_read(attacked: Attacked, name: str):
    path = attacked.windfall.data / name
    script = f"cat {path}; ls {path}/; cp -r {path} .; head -c1 {path}; echo tried"
    said = attacked.run(attacked.client(attacked.key()), script)
    assert said.splitlines()[-1] == "tried"
    assert "secret" not in said.replace(str(path), "")
    for line in said.splitlines()[:-1]:
        assert "Permission denied" in line or "No such" in line or "cannot access" in line, said


def test_the_daemons_own_files_cannot_be_written(attacked: Attacked):
    data, batch = attacked.windfall.data, attacked.client(attacked.key())
    before = sorted(entry.name for entry in data.iterdir())
    keys = (data / "keys.json").read_bytes()
    touch = f"for d in . agent objects logs store; do touch {data}/$d/evil; done"
    script = f"{touch}; echo x >> {data}/keys.json"
    attacked.run(batch, script)
    assert sorted(entry.name for entry in data.iterdir()) == before
    assert (data / "keys.json").read_bytes() == keys
    assert not list(data.rglob("evil"))


def test_the_daemons_processes_cannot_be_signalled_or_looked_into(attacked: Attacked):
    daemon = attacked.windfall.process
    assert daemon is not None
    victims = [*attacked.windfall.agent_pids().values()]
    if attacked.is_root:  # where it is not, what was started for it stands before the daemon itself
        victims.append(daemon.pid)
    script = "".join(f"kill -9 {pid}; cat /proc/{pid}/environ; ls /proc/{pid}/fd; " for pid in victims)
    said = attacked.run(attacked.client(attacked.key()), f"{script} echo tried")
    assert said.splitlines()[-1] == "tried"
    for pid in victims:
        os.kill(pid, 0)
    assert "PATH=" not in said


def test_a_job_has_no_way_to_gain_rights(attacked: Attacked):
    said = attacked.run(
        attacked.client(attacked.key()), "id -u; grep -E 'CapEff|NoNewPrivs' /proc/self/status"
    )
    uid, *status = said.splitlines()
    assert uid != "0"
    assert int(dict(line.split() for line in status)["CapEff:"], 16) == 0


def test_a_job_cannot_unsay_what_is_in_its_log(attacked: Attacked):
    script = "echo first; : > /proc/self/fd/1; truncate -s 0 /proc/self/fd/1; echo last"
    said = attacked.run(attacked.client(attacked.key()), script)
    assert said.splitlines()[0] == "first"
