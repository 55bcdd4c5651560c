"""An agent comes to a bare host and is reached there, by a real ssh."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.hosts_in_a_box import USER, HostsInABox, require_hosts
from windfall.agent.client import connect
from windfall.agent.errors import AgentUnreachable
from windfall.agent.messages import Shutdown
from windfall.agent.settings import AgentSettings
from windfall.engines.hosts.bundle import Platform, bundle_for, own_platform
from windfall.engines.hosts.destinations import parse_destination
from windfall.engines.hosts.reach import HostCalls, HostPlace, SshReach, agent_settings
from windfall.engines.hosts.ssh import Ssh

T = TypeVar("T")
#: Asked for by name: another Python of this machine's user is not one of the host's.
PYTHON = "/usr/bin/python3"


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[HostsInABox]:
    """Two hosts; the second has no Python."""
    require_hosts()
    with HostsInABox(2, tmp_path, without={1: (PYTHON,)}) as box:
        yield box


_USED: list[Ssh] = []


def _ssh(hosts: HostsInABox) -> Ssh:
    _USED.append(Ssh(str(hosts.ssh_config.parent), str(hosts.ssh_config)))
    return _USED[-1]


async def _reach(hosts: HostsInABox, to: str, daemon: str = "d1") -> SshReach:
    ssh, destination = _ssh(hosts), parse_destination(to)
    seen = await HostCalls(ssh, destination).look()
    root = f"{seen.base}/agents/{daemon}/{destination.host}"
    settings = agent_settings(root, AgentSettings("", "", gpus="simulated:2", sample_every_s=0))
    return SshReach(ssh, HostPlace(destination, seen.python, seen.base, root), settings)


def _run(work: Callable[[], Awaitable[T]]) -> T:
    async def within() -> T:
        try:
            return await work()
        finally:
            for ssh in _USED:
                await ssh.close()
            _USED.clear()

    return asyncio.run(within())


def _refusal(hosts: HostsInABox, to: str) -> str:
    with pytest.raises(AgentUnreachable) as caught:
        _run(lambda: HostCalls(_ssh(hosts), parse_destination(to)).look())
    return str(caught.value)


@pytest.mark.parametrize("user", ["root", USER])
def test_an_agent_is_installed_started_reached_and_removed(hosts: HostsInABox, user: str) -> None:
    # A login shell that talks, as people's do.
    (hosts.home(0, user) / ".bashrc").write_text("echo welcome to box0\n")

    async def first() -> int:
        reach = await _reach(hosts, f"{user}@box0")
        other = await _reach(hosts, f"{user}@box0", "d2")
        # Two daemons at once do not break each other's installation.
        await asyncio.gather(reach.bring_up(), other.bring_up())
        connection = await connect(reach, 1)
        assert connection.inventory.settings == reach.digest
        assert (connection.inventory.hostname, len(connection.inventory.gpus)) == ("box0", 2)
        checkup = await reach.check_up()
        assert len(checkup.gpus) == 2
        assert {"disk", "clock", "sessions"} <= {verdict.subject for verdict in checkup.checks}
        await connection.close()
        return connection.inventory.agent_pid

    agent = _run(first)
    # It outlives the session and the daemon: all of ssh's processes ended with the event loop.
    assert hosts.run(0, "cat", f"/proc/{agent}/comm").startswith("python3")

    async def second() -> None:
        reach = await _reach(hosts, f"{user}@box0")
        await reach.bring_up()
        connection = await connect(reach, 2)
        assert connection.inventory.agent_pid == agent
        assert "still runs" in (await reach.remove(force=False)).kept
        await connection.send([Shutdown(kill=True)])
        async for _ in connection:
            continue
        await connection.close()
        while "still runs" in (kept := (await reach.remove(force=False)).kept):
            continue  # Each asks over ssh anew.
        assert kept == ""

    _run(second)
    base = Path("/var/lib/windfall-host") if user == "root" else Path(f"/home/{user}/.windfall")
    # The other daemon's agent, and the installation that it runs from, are still there.
    assert "agents" in (left := hosts.run(0, "ls", str(base)).split())
    assert len(left) == 2
    assert hosts.run(0, "ls", f"{base}/agents") == "d2\n"


def test_a_damaged_installation_is_made_again(hosts: HostsInABox) -> None:
    async def play() -> None:
        reach = await _reach(hosts, "box0")
        await reach.bring_up()
        connection = await connect(reach, 1)
        await connection.send([Shutdown(kill=True)])
        async for _ in connection:
            continue
        await connection.close()
        (site,) = [name for name in hosts.run(0, "ls", "/var/lib/windfall-host").split() if name != "agents"]
        hosts.run(0, "rm", "-r", f"/var/lib/windfall-host/{site}/msgspec")
        again = await _reach(hosts, "box0")
        await again.bring_up()
        connection = await connect(again, 2)
        assert connection.inventory.settings == again.digest
        await connection.close()

    _run(play)


def test_what_keeps_us_from_a_host_says_what_to_do(hosts: HostsInABox, tmp_path: Path) -> None:
    assert "apt install python3" in _refusal(hosts, "box1")
    assert "ssh-copy-id" in _refusal(hosts, "nobody@box0")
    keys = hosts.known_hosts.read_text().splitlines()
    hosts.known_hosts.write_text(keys[1] + "\n")
    assert "compare the fingerprint" in _refusal(hosts, "root@box0")
    hosts.known_hosts.write_text(keys[1].replace("box1", "box0") + "\n")
    assert "has changed" in _refusal(hosts, "root@box0")
    hosts.known_hosts.write_text("\n".join(keys) + "\n")
    assert "does sshd run there" in _refusal(hosts, "box0:23")
    hosts.run(0, "mkdir", "/var/lib/windfall-host")
    hosts.run(0, "mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", "/var/lib/windfall-host")
    with pytest.raises(AgentUnreachable, match="free some space"):
        _run(lambda: _bring_up(hosts, "box0"))
    assert hosts.run(0, "ls", "-A", "/var/lib/windfall-host") == ""


async def _bring_up(hosts: HostsInABox, to: str) -> None:
    await (await _reach(hosts, to)).bring_up()


@pytest.mark.parametrize(
    "script",
    [
        "echo garbage; exit 0",
        "head -c 9000000 /dev/zero; sleep 600",
        "head -c 100 /dev/urandom",
        'cat >/dev/null; echo "windfall-answer-0 {}"',
        "exit 3",
    ],
)
def test_a_host_that_answers_nonsense_is_unreachable_and_nothing_worse(tmp_path: Path, script: str) -> None:
    program = tmp_path / "ssh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    ssh = Ssh(str(tmp_path), program=str(program))
    destination = parse_destination("liar")
    with pytest.raises(AgentUnreachable, match="liar"):
        _run(lambda: HostCalls(ssh, destination).look())
    reach = SshReach(
        ssh,
        HostPlace(destination, PYTHON, "/base", "/base/agents/d/liar"),
        agent_settings("/base/agents/d/liar", AgentSettings("", "")),
    )
    with pytest.raises(AgentUnreachable, match="liar"):
        _run(reach.bring_up)


def test_a_host_that_lies_about_its_paths_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "ssh"
    look = (
        '{"base": "/tmp/$(id)", "uid": 0, "python": "python3", "version": [3, 11, 2], "tag": "x", "machine": "x",'
        ' "libc": "x", "hostname": "x", "vcpus": 1, "memory_mib": 1, "free_bytes": 1}'
    )
    program.write_text(
        "#!/bin/sh\nmark=$(grep -ao 'windfall-answer-[0-9a-f]\\{16\\}' | tail -1)\n"
        f"echo \"$mark\" '{look}'\n"
    )
    program.chmod(0o755)
    with pytest.raises(AgentUnreachable, match="cannot be a directory"):
        _run(lambda: HostCalls(Ssh(str(tmp_path), program=str(program)), parse_destination("liar")).look())


def test_another_platform_gets_our_package_and_its_pip_the_rest() -> None:
    ours = bundle_for(own_platform())
    assert ours.requirements == ()
    assert {name.partition("/")[0] for name, _ in ours.files} >= {
        "windfall",
        "msgspec",
        "obstore",
        "pynvml.py",
    }
    other = bundle_for(Platform("cpython-313", "aarch64", "glibc"))
    assert {name.partition("/")[0] for name, _ in other.files} == {"windfall"}
    assert any(requirement.startswith("msgspec==") for requirement in other.requirements)
    assert other.name != ours.name
    assert bundle_for(Platform("cpython-313", "x86_64", "glibc")).name != other.name


def test_the_relay_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "src" / "windfall" / "agent" / "relay.py"
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 69
    assert "no agent answers" in done.stderr
