"""A real OpenSSH server of the user who runs the tests, at a port of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
from pathlib import Path

from tests.waiting import wait_until

#: Debian has it where only root looks.
SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")


def missing_ssh_part() -> str:
    """What this machine lacks for such a server; empty if nothing."""
    for name, program in (
        ("sshd", SSHD),
        ("ssh-keygen", shutil.which("ssh-keygen")),
        ("ssh", shutil.which("ssh")),
    ):
        if program is None:
            return f"{name} is not installed"
    return ""


class SshServer:
    """Lets the user in with one key. `served` is where what it runs begins."""

    def __init__(self, directory: Path, served: Path) -> None:
        assert SSHD is not None
        if os.geteuid() == 0:
            # Where it keeps its unprivileged half; the package leaves making it to the service.
            Path("/run/sshd").mkdir(exist_ok=True)
        for name in ("host", "client", "stranger"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
            subprocess.run(command, check=True)
        public = (directory / "client.pub").read_text()
        (directory / "allowed").write_text(
            f'restrict,command="cd {served} && eval $SSH_ORIGINAL_COMMAND" {public}'
        )
        self._log = directory / "sshd.log"
        settings = {
            "HostKey": directory / "host",
            "AuthorizedKeysFile": directory / "allowed",
            "PidFile": "none",
            # Temporary directories are below one that everybody may write.
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
        }
        options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
        # sshd cannot choose a port by itself, and another process may take the one that was free a moment ago.
        for _ in range(5):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
            listen = ["-o", f"ListenAddress=127.0.0.1:{self.port}"]
            self._process = subprocess.Popen(
                [SSHD, "-D", "-f", "/dev/null", "-E", str(self._log), *options, *listen]
            )
            if wait_until(
                lambda: self._process.poll() is not None or self._listens(), "sshd listens or ended"
            ):
                break
        self.key, self.wrong_key = ((directory / name).read_text() for name in ("client", "stranger"))
        host_key = (directory / "host.pub").read_text()
        stranger = (directory / "stranger.pub").read_text()
        self.known_hosts, self.wrong_hosts = (
            f"[127.0.0.1]:{self.port} {' '.join(text.split()[:2])}\n" for text in (host_key, stranger)
        )

    def url(self, name: str) -> str:
        """The address of a repository below what is served."""
        return f"ssh://{getpass.getuser()}@127.0.0.1:{self.port}/{name}"

    def close(self) -> None:
        """Ends it."""
        self._process.terminate()
        self._process.wait()

    def _listens(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0
