"""Hosts in a box: machines with a real sshd each, made of network, mount, UTS and process namespaces on this one.

Every host has an address, a name, a machine id, home directories, /tmp, /run and /dev/shm of its own; programs and
libraries are this machine's. A bridge joins them with this machine, where the daemon of a test runs. Needs root.

    with HostsInABox(2, tmp_path) as hosts:
        subprocess.run([*hosts.ssh(0), "hostname"])
        hosts.cut(0)     # packets are dropped: no end of a connection, no error
        hosts.heal(0)
        hosts.kill(1)    # all its processes, at once
        hosts.boot(1)

Hosts of parallel tests do not meet: each box has a subnet, which a lock file keeps for it, and names with the number of
that subnet. What a killed test left behind is removed by the next one that gets its subnet. Processes of a host end
with the process that made it.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import secrets
import shlex
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import pytest

from tests.conftest import require_part
from tests.ssh_server import SSHD, missing_ssh_part
from tests.waiting import wait_until

REPOSITORY = Path(__file__).resolve().parent.parent
#: An ordinary user that every host has besides root; the same key opens both.
USER, USER_ID = "alice", 4242
_LOCKS = Path("/tmp/windfall-hosts-in-a-box")
_SUBNETS = range(1, 250)
#: A host's own directories, kept over a boot, by the place where it sees them. Its /tmp, /run and /dev/shm are lost.
_KEPT = {
    "/root": "root",
    "/home": "home",
    "/var/tmp": "var-tmp",
    "/var/lib": "var-lib",
    "/etc/ssh": "etc-ssh",
}
_FILES = ("hosts", "hostname", "machine-id", "passwd", "group", "shadow")

#: The first process of a host. Bash collects the orphans that fall to it.
_INIT = """
set -eu
cd /
mount -t tmpfs tmpfs /mnt
for place in $SEEN; do mkdir -p /mnt$place; mount --rbind $place /mnt$place; done
for file in $FILES; do mount --bind $STATE/etc/$file /etc/$file; done
mount --bind $STATE/boot_id /proc/sys/kernel/random/boot_id
for place in $COVERED; do mount --bind /dev/null $place; done
hostname $NAME
for pair in $KEPT; do mount --bind $STATE/${pair#*:} ${pair%%:*}; done
# A repository below one of the directories of its own is out of its sight already.
for place in $HIDDEN /run /dev/shm; do if [ -d $place ]; then mount -t tmpfs -o mode=755 tmpfs $place; fi; done
mkdir -m 755 /run/sshd
chmod 1777 /dev/shm
for place in $SEEN; do mkdir -p $place; mount --rbind /mnt$place $place; done
mount -t tmpfs -o mode=1777 tmpfs /tmp
unset SEEN FILES STATE COVERED KEPT HIDDEN
"$SSHD" -D -e -f /etc/ssh/sshd_config &
wait
"""


def missing_host_part() -> str:
    """What this machine lacks for such hosts, in one line; empty if nothing."""
    if os.geteuid() != 0:
        return "hosts in a box need root"
    for program in ("ip", "unshare", "nsenter", "setpriv"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if missing := missing_ssh_part():
        return missing
    tried = subprocess.run(
        ["unshare", "-nmup", "--fork", "--mount-proc", "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode != 0:
        return f"no namespaces can be made here: {tried.stderr.strip()}"
    name = f"wf-try-{os.getpid()}"
    tried = subprocess.run(
        ["ip", "link", "add", name, "type", "bridge"], capture_output=True, text=True, check=False
    )
    if tried.returncode != 0:
        return f"no bridge can be made here: {tried.stderr.strip()}"
    _ip("link", "del", name)
    return ""


def require_hosts() -> None:
    """Skips the test, or fails it in CI, where no such hosts can be made."""
    missing = missing_host_part()
    require_part(not missing, missing)


class HostsInABox:
    """`count` hosts, numbered from 0. Use it as a context."""

    def __init__(
        self,
        count: int,
        directory: Path,
        *,
        see: Sequence[Path] = (),
        without: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        """Hosts see neither this repository nor this machine's homes, except for the paths in `see`.

        `without` are programs that a host lacks, by its number ("/usr/bin/python3").
        """
        self._count = count
        self._directory = directory / "hosts"
        self._see = tuple(see)
        self._without = without or {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._lock_fd = -1
        self._subnet = 0
        #: The client's files: what a user has in ~/.ssh.
        self.ssh_config = self._directory / "ssh_config"
        self.known_hosts = self._directory / "known_hosts"
        self.key = self._directory / "client"

    def __enter__(self) -> HostsInABox:
        """Makes and boots them."""
        self._directory.mkdir(parents=True)
        self._take_subnet()
        try:
            self._make_keys()
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("addr", "add", f"{self.gateway}/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            for host in range(self._count):
                self._make(host)
            for host in range(self._count):
                self._start(host)
            for host in range(self._count):
                self._await_sshd(host)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends all their processes and removes them."""
        self._close()

    @property
    def gateway(self) -> str:
        """The address by which hosts reach this machine."""
        return f"10.77.{self._subnet}.1"

    def address(self, host: int) -> str:
        """The address of a host."""
        return f"10.77.{self._subnet}.{10 + host}"

    def name(self, host: int) -> str:
        """What a host calls itself, and what the ssh configuration calls it."""
        return f"box{host}"

    def home(self, host: int, user: str = "root") -> Path:
        """A user's home directory, as a path of this machine."""
        state = self._state(host)
        return state / "root" if user == "root" else state / "home" / user

    def ssh(self, host: int, user: str = "root") -> list[str]:
        """The beginning of a command that runs something there as a client would."""
        return ["ssh", "-F", str(self.ssh_config), "-o", "BatchMode=yes", f"{user}@{self.name(host)}"]

    def run(self, host: int, *command: str, user: str = "root") -> str:
        """Run a command inside a host without its network, and return its output."""
        pid = self._first_process(host)
        enter = ["nsenter", "-t", str(pid), "-n", "-m", "-u", "-p", "--wd=/"]
        if user != "root":
            enter += ["setpriv", f"--reuid={USER_ID}", f"--regid={USER_ID}", "--clear-groups"]
        home = "/root" if user == "root" else f"/home/{user}"
        done = subprocess.run(
            [*enter, *command],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": home, "LANG": "C.UTF-8"},
        )
        assert done.returncode == 0, (command, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def pids(self, host: int) -> list[int]:
        """All processes of a host, in this machine's numbers, oldest first."""
        return sorted(int(pid) for pid in _ip("netns", "pids", self._namespace(host)).split())

    def commands(self, host: int) -> dict[int, str]:
        """The command lines of all processes of a host, by this machine's numbers."""
        lines = {}
        for pid in self.pids(host):
            try:
                lines[pid] = (
                    Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
            except OSError:
                continue
        return lines

    def cut(self, host: int) -> None:
        """Takes a host off the network: packets are dropped silently both ways."""
        _ip("link", "set", self._cable(host), "nomaster")

    def heal(self, host: int) -> None:
        """Puts it back on."""
        _ip("link", "set", self._cable(host), "master", self._bridge)

    def kill(self, host: int) -> None:
        """Ends every process of a host at once, as a power cut does."""
        process = self._processes.pop(host, None)
        if process is not None:
            process.kill()
            process.wait()
            wait_until(lambda: not self.pids(host), f"all processes of host {host} have ended")

    def boot(self, host: int) -> None:
        """Starts a host that was killed: its home directories are as they were, its /tmp is empty."""
        self._start(host)
        self._await_sshd(host)

    def reboot(self, host: int) -> None:
        """Kills a host and starts it again."""
        self.kill(host)
        self.boot(host)

    def log(self, host: int) -> str:
        """What a host's sshd has said."""
        return (self._state(host) / "sshd.log").read_text(errors="replace")

    @property
    def _bridge(self) -> str:
        return f"wf{self._subnet}p{os.getpid()}"

    def _namespace(self, host: int) -> str:
        return f"{self._bridge}h{host}"

    def _cable(self, host: int) -> str:
        return f"wf{self._subnet}v{host}"

    def _state(self, host: int) -> Path:
        return self._directory / str(host)

    def _first_process(self, host: int) -> int:
        """The first process of the host's own process namespace: the child of unshare."""
        outer = self._processes[host].pid
        children = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
        return int(children[0])

    def _take_subnet(self) -> None:
        _LOCKS.mkdir(mode=0o700, exist_ok=True)
        for number in _SUBNETS:
            fd = os.open(_LOCKS / f"{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                continue
            self._lock_fd, self._subnet = fd, number
            _remove_leftovers(number)
            return
        pytest.fail("all subnets 10.77.x.0/24 are in use")

    def _make_keys(self) -> None:
        for path in (self.key, *(self._directory / f"host{host}" for host in range(self._count))):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "box", "-f", str(path)], check=True
            )
        known, sections = [], []
        for host in range(self._count):
            public = (self._directory / f"host{host}.pub").read_text().split()
            known.append(f"{self.name(host)} {public[0]} {public[1]}\n")
            sections.append(
                f"Host {self.name(host)}\n  HostName {self.address(host)}\n  HostKeyAlias {self.name(host)}\n"
            )
        self.known_hosts.write_text("".join(known))
        self.ssh_config.write_text(
            "".join(sections)
            + "Host *\n  User root\n  IdentitiesOnly yes\n  GlobalKnownHostsFile /dev/null\n  ConnectTimeout 5\n"
            + f"  IdentityFile {self.key}\n  UserKnownHostsFile {self.known_hosts}\n"
        )

    def _make(self, host: int) -> None:
        state = self._state(host)
        for name in ("etc", *_KEPT.values()):
            (state / name).mkdir(parents=True)
        home = state / "home" / USER
        home.mkdir()
        os.chown(home, USER_ID, USER_ID)
        (state / "var-tmp").chmod(0o1777)
        (state / "root").chmod(0o700)
        etc = state / "etc"
        names = [f"{self.address(other)} {self.name(other)}\n" for other in range(self._count)]
        (etc / "hosts").write_text("127.0.0.1 localhost\n" + "".join(names))
        (etc / "hostname").write_text(f"{self.name(host)}\n")
        (etc / "machine-id").write_text(f"{secrets.token_hex(16)}\n")
        accounts = Path("/etc/passwd").read_text()
        # Root's home is what /etc/passwd says, which on a strange machine may be elsewhere.
        assert pwd.getpwuid(0).pw_dir == "/root"
        (etc / "passwd").write_text(f"{accounts}{USER}:x:{USER_ID}:{USER_ID}::/home/{USER}:/bin/bash\n")
        (etc / "group").write_text(f"{Path('/etc/group').read_text()}{USER}:x:{USER_ID}:\n")
        (etc / "shadow").write_text(f"root:*:19000:0:99999:7:::\n{USER}:*:19000:0:99999:7:::\n")
        (etc / "shadow").chmod(0o600)
        self._configure_sshd(host)
        namespace = self._namespace(host)
        _ip("netns", "add", namespace)
        _ip("link", "add", self._cable(host), "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "set", self._cable(host), "master", self._bridge, "up")
        _ip("-n", namespace, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        for card in ("eth0", "lo"):
            _ip("-n", namespace, "link", "set", card, "up")
        _ip("-n", namespace, "route", "add", "default", "via", self.gateway)

    def _configure_sshd(self, host: int) -> None:
        folder = self._state(host) / "etc-ssh"
        shutil.copy(self._directory / f"host{host}", folder / "host_key")
        shutil.copy(f"{self.key}.pub", folder / "allowed")
        settings = {
            "ListenAddress": "0.0.0.0:22",
            "HostKey": "/etc/ssh/host_key",
            "AuthorizedKeysFile": "/etc/ssh/allowed",
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
            "MaxStartups": "100",
        }
        (folder / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))

    def _start(self, host: int) -> None:
        assert host not in self._processes
        assert SSHD is not None
        state = self._state(host)
        (state / "boot_id").write_text(f"{secrets.token_hex(16)}\n")
        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "STATE": str(state),
            "NAME": self.name(host),
            "SSHD": SSHD,
            "FILES": " ".join(_FILES),
            "KEPT": " ".join(f"{place}:{name}" for place, name in _KEPT.items()),
            "COVERED": " ".join(_programs(self._without.get(host, ()))),
            "HIDDEN": shlex.quote(str(REPOSITORY)),
            "SEEN": " ".join(str(path) for path in self._see),
        }
        assert not any(" " in str(path) for path in (state, REPOSITORY, *self._see)), (
            "paths without blanks, please"
        )
        command = ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/run/netns/{self._namespace(host)}"]
        command += ["unshare", "--mount", "--uts", "--pid", "--ipc", "--fork", "--mount-proc", "--kill-child"]
        with (state / "sshd.log").open("ab") as log:
            self._processes[host] = subprocess.Popen(
                [*command, "bash", "-c", _INIT],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _await_sshd(self, host: int) -> None:
        def serves() -> bool:
            assert self._processes[host].poll() is None, self.log(host)
            with socket.socket() as client:
                client.settimeout(1)
                return client.connect_ex((self.address(host), 22)) == 0

        wait_until(serves, f"sshd of host {host} listens")

    def _close(self) -> None:
        for host in list(self._processes):
            self.kill(host)
        if self._lock_fd >= 0:
            _remove_leftovers(self._subnet)
            os.close(self._lock_fd)
            self._lock_fd = -1


def _programs(paths: Sequence[str]) -> list[str]:
    """Each program with what its name leads to: a link cannot be covered."""
    return sorted({os.path.realpath(path) for path in paths if Path(path).exists()})


def _remove_leftovers(subnet: int) -> None:
    """Remove the cables, the namespaces and the bridge of a subnet whose lock is ours.

    The cables first: what a host that was cut off could not send any more keeps its namespace for minutes after it
    was deleted, and with it the cable.
    """
    for line in _ip("-o", "link", "show", "type", "veth").splitlines():
        name = line.split(":")[1].split("@")[0].strip()
        if name.startswith(f"wf{subnet}v"):
            # One whose namespace is just being removed may be gone.
            subprocess.run(["ip", "link", "del", name], capture_output=True, check=False)
    for line in _ip("netns", "list").splitlines():
        name = line.split()[0] if line.strip() else ""
        if name.startswith(f"wf{subnet}p"):
            _ip("netns", "del", name)
    for line in _ip("-o", "link", "show", "type", "bridge").splitlines():
        name = line.split(":")[1].strip()
        if name.startswith(f"wf{subnet}p"):
            _ip("link", "del", name)


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr.strip()}"
    return done.stdout
