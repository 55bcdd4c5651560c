"""A profile of the AWS clients that leads to Windfall: a block in ~/.aws/config and one in ~/.aws/credentials.

A block stands between two comment lines that name the profile. Everything outside of them stays as it is, byte for
byte, and a profile of the same name that stands outside is never touched. Must not know where its values come from.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from windfall.cli.errors import BadUsage, CliError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
_HEADER = re.compile(r"^\[\s*(?:(profile|services)\s+)?['\"]?([^'\"\]]*?)['\"]?\s*\]")
#: Bytes that are not text in other sections come back as they were.
_ENCODING = ("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class AwsFiles:
    """Where AWS clients keep profiles."""

    config: Path
    credentials: Path

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> AwsFiles:
        """The files that the clients of this environment read."""
        try:
            return cls(
                Path(environment.get("AWS_CONFIG_FILE") or "~/.aws/config").expanduser(),
                Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials").expanduser(),
            )
        except RuntimeError:
            raise CliError("it is not known where your home directory is; set HOME") from None


@dataclass(frozen=True, slots=True)
class AwsProfile:
    """What a profile says."""

    name: str
    region: str
    #: The address of each service, by the name that the clients' configuration has for it.
    services: Mapping[str, str]
    access_key_id: str
    secret_access_key: str
    session_token: str | None

    def config(self) -> list[str]:
        """The lines for ~/.aws/config."""
        lines = [f"[profile {self.name}]", f"region = {self.region}", f"services = {self.name}"]
        lines.append(f"[services {self.name}]")
        for service, url in self.services.items():
            lines += [f"{service} =", f"  endpoint_url = {url}"]
        return lines

    def credentials(self) -> list[str]:
        """The lines for ~/.aws/credentials."""
        lines = [
            f"[{self.name}]",
            f"aws_access_key_id = {self.access_key_id}",
            f"aws_secret_access_key = {self.secret_access_key}",
        ]
        return lines if self.session_token is None else [*lines, f"aws_session_token = {self.session_token}"]


def check_name(name: str) -> None:
    """Refuse a name that a profile cannot have, or that would replace the user's own AWS access."""
    if name == "default":
        raise BadUsage(
            "--profile default would replace your own AWS access; use another name, such as windfall"
        )
    if not _NAME.fullmatch(name):
        raise BadUsage(f"--profile {name!r}: use 1 to 64 letters, digits, '.', '_' or '-'")


def write_profile(files: AwsFiles, profile: AwsProfile) -> None:
    """Write the profile, or replace the one that was written before."""
    with _held(files):
        config = _with_block(files.config, profile.name, profile.config())
        credentials = _with_block(files.credentials, profile.name, profile.credentials())
        # The key first: a profile without one would be asked with the keys of another.
        _replace(files.credentials, credentials, private=True)
        _replace(files.config, config)


def remove_profile(files: AwsFiles, name: str) -> bool:
    """Take the profile away; False where there is none that was written here."""
    with _held(files):
        removed = False
        for path, private in ((files.config, False), (files.credentials, True)):
            before, block, after = _parted(path, name)
            if block is not None:
                _replace(path, before.removesuffix("\n\n") + "\n" * before.endswith("\n\n") + after, private)
                removed = True
        return removed


@contextlib.contextmanager
def _held(files: AwsFiles) -> Iterator[None]:
    """Let two commands that change profiles do so one after the other."""
    try:
        for path in (files.config, files.credentials):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(files.config.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
    except OSError as error:
        raise CliError(
            f"the profile is not changed: {error.filename or files.config.parent}: {error.strerror}; "
            "name other files with AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE"
        ) from None


def _marks(name: str) -> tuple[str, str]:
    return (
        f"# >>> windfall profile {name}: written by `windfall env --profile {name}`, removed by --remove\n",
        f"# <<< windfall profile {name}\n",
    )


def _parted(path: Path, name: str) -> tuple[str, str | None, str]:
    """What stands before the block, in it (None where there is none), and after it."""
    if path.exists() and not path.is_file():
        raise CliError(
            f"{path} is not a file; name another with AWS_CONFIG_FILE or AWS_SHARED_CREDENTIALS_FILE"
        )
    try:
        text = path.read_bytes().decode(*_ENCODING)
    except FileNotFoundError:
        text = ""
    begin, end = _marks(name)
    before, mark, rest = text.partition(begin)
    if not mark:
        return text, None, ""
    block, closed, after = rest.partition(end)
    if not closed:
        raise CliError(f"{path}: the line {end.strip()!r} is missing below {begin.strip()!r}; put it back")
    return before, block, after


def _with_block(path: Path, name: str, lines: list[str]) -> str:
    before, block, after = _parted(path, name)
    for line in (before + after).splitlines():
        match = _HEADER.match(line)
        if match and match[2] == name:
            raise CliError(
                f"{path} has a section {line.strip()} that `windfall env` did not write; "
                "choose another name with --profile NAME"
            )
    if block is None and before:
        before += "\n" if before.endswith("\n") else "\n\n"
    begin, end = _marks(name)
    return before + begin + "\n".join(lines) + "\n" + end + after


def _replace(path: Path, text: str, private: bool = False) -> None:
    """Put a text in the place of a file, whole or not at all; a link to it stays a link."""
    target = path.resolve()
    status = target.stat() if target.exists() else None
    if not text:
        if status is not None:
            target.unlink()
        return
    mode = 0o600 if private or status is None else status.st_mode & 0o777
    beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(text.encode(*_ENCODING))
            file.flush()
            os.fsync(file.fileno())
            if status is not None and (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
                with contextlib.suppress(PermissionError):
                    os.fchown(file.fileno(), status.st_uid, status.st_gid)
            os.fchmod(file.fileno(), mode)
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
