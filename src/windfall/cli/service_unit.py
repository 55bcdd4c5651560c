"""The systemd unit of a daemon: its text, where it is kept, and whether it is ours.

Decides what systemd must and must not do to a daemon whose jobs outlive it. Must not run systemctl.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from windfall.cli.errors import BadUsage, CliError

#: The first line of a unit that was written here.
MARK = "# Written by `windfall service install`; `windfall service uninstall` removes it."
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)

_UNIT = """\
{mark}
[Unit]
Description=Windfall ({data})
{after}
[Service]
Type=notify
TimeoutStartSec=300
ExecStart={command}
WorkingDirectory=/
# Jobs and the processes that keep them outlive the daemon and are adopted by the next one. So only the daemon itself is
# stopped, and nothing here may give the daemon a file system view of its own (PrivateTmp, ProtectHome and the like).
KillMode=process
# The agent makes a cgroup for each job.
Delegate=yes
# A job that is out of memory, or that has many processes, is not a reason to stop the daemon.
OOMPolicy=continue
TasksMax=infinity
LimitNOFILE=65536
Restart=on-failure
RestartSec=2
# 2: a setting is wrong, which no restart changes.
RestartPreventExitStatus=2

[Install]
WantedBy={wanted_by}
"""
_AFTER = "Wants=network-online.target\nAfter=network-online.target docker.service podman.socket\n"


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of the system, or of one user's own service manager."""

    name: str
    of_user: bool

    @classmethod
    def named(cls, name: str) -> Unit:
        """The unit of this name, for the user who runs this command."""
        if not _NAME.fullmatch(name):
            raise BadUsage(f"--name {name!r}: use 1 to 64 letters, digits, '.', '_' or '-'")
        return cls(name, os.geteuid() != 0)

    @property
    def path(self) -> Path:
        """Where its file is."""
        if not self.of_user:
            return Path("/etc/systemd/system", f"{self.name}.service")
        above = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        return Path(above, "systemd", "user", f"{self.name}.service")

    @property
    def systemctl(self) -> list[str]:
        """How systemctl is called for it."""
        return ["systemctl", "--user"] if self.of_user else ["systemctl"]

    def text(self, data: Path, options: Sequence[str]) -> str:
        """What its file says, for a daemon of this data directory with more options of `windfall up`."""
        command = [*program(), "up", "--data", str(data), *options]
        return _UNIT.format(
            mark=MARK,
            data=str(data).replace("%", "%%").replace("\n", " "),
            after="" if self.of_user else _AFTER,
            command=" ".join(map(quoted, command)),
            wanted_by="default.target" if self.of_user else "multi-user.target",
        )

    def is_ours(self) -> bool | None:
        """Whether its file was written here; None where there is none."""
        try:
            return self.path.read_text(errors="replace").startswith(MARK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CliError(f"{self.path} cannot be read: {error.strerror}") from None

    def check_ours(self) -> None:
        """Refuse a file that somebody else wrote."""
        if self.is_ours() is False:
            raise CliError(
                f"{self.path} was not written by `windfall service install`; choose another name with --name"
            )

    def write(self, text: str) -> None:
        """Put the text in the place of the file, whole or not at all."""
        beside = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(text)
            beside.chmod(0o644)
            beside.replace(self.path)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise CliError(f"{self.path} cannot be written: {error.strerror}") from None


def program() -> list[str]:
    """How this very installation is started: the script that was called (of a venv, pipx or uv), else its Python."""
    called = shutil.which(sys.argv[0]) if Path(sys.argv[0]).name == "windfall" else None
    if called is None:
        beside = Path(sys.executable).with_name("windfall")
        called = str(beside) if os.access(beside, os.X_OK) else None
    return [str(Path(called).absolute())] if called else [sys.executable, "-P", "-m", "windfall.cli"]


def quoted(word: str) -> str:
    """A word of a command as systemd reads it."""
    if "\n" in word or "\0" in word:
        raise BadUsage(f"{word!r} cannot be an option of a service: it has a line break")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if re.search(r"[\s\"'\\;]", word) or not word else escaped
