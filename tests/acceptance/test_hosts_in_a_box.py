"""The hosts that other tests use are machines of their own, reached by a real sshd."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

from tests.hosts_in_a_box import REPOSITORY, USER, HostsInABox, require_hosts
from tests.waiting import wait_until


def _over_ssh(hosts: HostsInABox, host: int, command: str, user: str = "root") -> str:
    done = subprocess.run([*hosts.ssh(host, user), command], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else f"failed: {done.stderr.strip()}"


def test_hosts_are_apart_and_can_be_cut_off_killed_and_booted(tmp_path: Path) -> None:
    require_hosts()
    with HostsInABox(2, tmp_path) as hosts:
        assert [_over_ssh(hosts, host, "hostname") for host in (0, 1)] == ["box0", "box1"]
        assert len({_over_ssh(hosts, host, "cat /etc/machine-id") for host in (0, 1)}) == 2
        assert _over_ssh(hosts, 0, "id -un; echo $HOME", USER).split() == [USER, f"/home/{USER}"]
        # Neither this repository, nor the test's directory below /tmp, nor the other host's files.
        assert _over_ssh(hosts, 0, f"ls -A {REPOSITORY}; ls -A /tmp") == ""
        assert _over_ssh(hosts, 0, "echo kept > ~/file; echo lost > /tmp/file; echo done") == "done"
        assert (hosts.home(0) / "file").read_text() == "kept\n"
        assert hosts.run(1, "ls", "-A", "/root") == ""
        # Hosts reach each other, and this machine.
        ping = "python3 -c 'import socket; socket.create_connection((\"{}\", 22), 5); print(1)'"
        assert _over_ssh(hosts, 0, ping.format("box1")) == "1"
        # Something that outlives its session, until the host is killed.
        assert _over_ssh(hosts, 0, "setsid sleep 5417 >/dev/null 2>&1 </dev/null & echo $!").isdigit()
        boot_id = _over_ssh(hosts, 0, "cat /proc/sys/kernel/random/boot_id")

        def sleeps() -> bool:
            return any("sleep 5417" in line for line in hosts.commands(0).values())

        wait_until(sleeps, "the command has begun")

        hosts.cut(0)
        command = [*hosts.ssh(0)[:-1], "-o", "ConnectTimeout=1", "box0", "true"]
        assert subprocess.run(command, capture_output=True, check=False).returncode == 255
        assert _over_ssh(hosts, 1, "echo there") == "there"
        hosts.heal(0)
        wait_until(lambda: _over_ssh(hosts, 0, "echo back") == "back", "the host answers again")
        assert sleeps()

        hosts.reboot(0)
        assert not sleeps()
        assert _over_ssh(hosts, 0, "cat ~/file; ls -A /tmp") == "kept"
        assert _over_ssh(hosts, 0, "cat /proc/sys/kernel/random/boot_id") != boot_id


def test_a_host_may_lack_programs_and_see_paths(tmp_path: Path) -> None:
    require_hosts()
    shown = REPOSITORY / "src"
    with HostsInABox(1, tmp_path, see=(shown,), without={0: ("/usr/bin/python3",)}) as hosts:
        assert _over_ssh(hosts, 0, "command -v /usr/bin/python3 || echo none") == "none"
        assert _over_ssh(hosts, 0, f"ls {REPOSITORY}") == "src"
        assert _over_ssh(hosts, 0, f"ls {shown}") == "windfall"


def test_the_network_of_a_host_that_was_cut_off_is_gone_with_it(tmp_path: Path) -> None:
    require_hosts()
    with HostsInABox(1, tmp_path) as hosts:
        subnet = hosts.gateway.split(".")[2]
        cable = socket.if_nametoindex(f"wf{subnet}v0")
        client = subprocess.Popen([*hosts.ssh(0), "cat /dev/zero"], stdout=subprocess.PIPE)
        assert client.stdout is not None
        assert client.stdout.read(1) == b"\0"
        # What the kernel of a host cannot deliver keeps its namespace for minutes.
        hosts.cut(0)
    with client:
        client.kill()
    # By its number: somebody else may have a cable of that name by now.
    assert cable not in [number for number, _ in socket.if_nameindex()]
