"""A private repository is fetched with the credential for its host, and nobody else is shown that."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.git_server import GitServer, make_certificate, make_repository, missing_part
from tests.ssh_server import SshServer, missing_ssh_part
from windfall.agent.courier.errors import CannotBring
from windfall.agent.courier.git import Checkout, Permission
from windfall.agent.courier.git_access import opened
from windfall.jobs.git_credentials import (
    DEFAULT_USERNAME,
    GitCredential,
    credential_of,
    encode_credential,
)

TOKEN = secrets.token_hex(20)
KEY = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{secrets.token_hex(20)}\n-----END OPENSSH PRIVATE KEY-----\n"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    if problem := missing_part():
        pytest.skip(problem)
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def servers(tmp_path, certificate, monkeypatch) -> Iterator[tuple[GitServer, GitServer]]:
    """Two hosts that want the same password; the second is somebody else's."""
    monkeypatch.setenv("GIT_SSL_CAINFO", str(certificate))
    make_repository(tmp_path / "served" / "private", "mine\n")
    pair = tuple(GitServer(tmp_path / "served", certificate, f"{DEFAULT_USERNAME}:{TOKEN}") for _ in range(2))
    yield pair[0], pair[1]
    for server in pair:
        server.close()


class Try:
    """One checkout of a tenant's job."""

    def __init__(
        self, root: Path, url: str, value: str | None, environment: dict[str, str] | None = None
    ) -> None:
        self.directory, self.scratch = root / "code", root / "scratch"
        shutil.rmtree(self.directory, ignore_errors=True)
        for path in (self.directory, self.scratch):
            path.mkdir(exist_ok=True)
        permission = Permission.of(credential_of(url, "lab"), value)
        checkout = Checkout(
            str(self.directory), str(self.scratch), None, environment or {}, apart=True, permission=permission
        )
        self.commit = checkout.bring(url, "main")


def a_token(token: str = TOKEN, username: str = DEFAULT_USERNAME) -> str:
    return encode_credential(GitCredential(username=username, token=token))


def test_a_private_repository_is_fetched_with_its_credential(tmp_path, servers):
    done = Try(tmp_path, servers[0].url("private"), a_token())
    assert (done.directory / "code").read_text() == "mine\n"
    assert len(done.commit) == 40
    holding = [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert holding == []


def test_a_name_in_the_address_does_no_harm(tmp_path, servers):
    url = servers[0].url("private").replace("https://", "https://somebody@")
    assert Try(tmp_path, url, a_token()).commit


def test_without_a_credential_the_reason_says_what_an_admin_can_do(tmp_path, servers):
    with pytest.raises(CannotBring) as refused:
        Try(tmp_path, servers[0].url("private"), None)
    advice = f"; an admin can give a credential: windfall secret git {servers[0].host} --tenant lab;"
    # Batch shows 255 characters of a reason.
    assert advice in str(refused.value)[:220]
    assert servers[0].sent == []


def test_a_wrong_credential_is_not_shown(tmp_path, servers):
    with pytest.raises(CannotBring, match="does not open it; an admin can replace a credential") as refused:
        Try(tmp_path, servers[0].url("private"), a_token("wr0ngt0ken"))
    assert "wr0ngt0ken" not in str(refused.value)


def test_a_redirection_to_another_host_does_not_get_it(tmp_path, servers):
    first, second = servers
    first.moved["private"] = second.url("private")
    with pytest.raises(CannotBring):
        Try(tmp_path, first.url("private"), a_token())
    # Another name of the same machine is another host, too.
    first.moved["private"] = (
        first.url("private").replace("localhost", "127.0.0.1").replace("/private", "/other")
    )
    with pytest.raises(CannotBring):
        Try(tmp_path, first.url("private"), a_token())
    assert second.asked, "git has followed"
    assert second.sent == []
    assert [path for path in first.asked if path.startswith("/other")], "git has followed"
    assert [path for path, _ in first.sent if path.startswith("/other")] == []


def test_helpers_of_the_users_own_configuration_do_not_keep_it(tmp_path, servers):
    kept, own = tmp_path / "kept", tmp_path / "own"
    own.write_text(f"[credential]\n\thelper = store --file {kept}\n[safe]\n\tdirectory = *\n")
    assert Try(tmp_path, servers[0].url("private"), a_token(), {"GIT_CONFIG_GLOBAL": str(own)}).commit
    assert not kept.exists()


def test_a_value_that_is_no_credential_is_said_without_it():
    with pytest.raises(CannotBring, match=r"cannot be used: .* windfall secret git host") as refused:
        Permission.of("git@host", TOKEN)
    assert TOKEN not in str(refused.value)


# --- ssh --------------------------------------------------------------------------------------------


def a_key(known_hosts: str = "") -> str:
    return encode_credential(GitCredential(ssh_key=KEY, known_hosts=known_hosts))


@pytest.fixture
def ssh(tmp_path, monkeypatch, require) -> Path:
    """A program called ssh that writes down what it was given, and then is the server."""
    require(shutil.which("git") is not None, "git is not installed")
    make_repository(tmp_path / "served" / "private", "mine\n")
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "ssh"
    script.write_text(
        "#!/bin/sh\n"
        f'echo "$@" >> {tmp_path}/arguments\n'
        'while [ $# -gt 0 ]; do case "$1" in\n'
        f'  -i) stat -c %a "$2" > {tmp_path}/mode; cat "$2" > {tmp_path}/given; shift 2;;\n'
        "  -o|-p) shift 2;; -*) shift;; *) break;; esac; done\n"
        "shift\n"
        f'cd {tmp_path}/served && export GIT_CONFIG_GLOBAL={tmp_path}/safe && eval "exec $*"\n'
    )
    (tmp_path / "safe").write_text("[safe]\n\tdirectory = *\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path


@pytest.mark.parametrize("url", ["git@example.com:private", "ssh://git@example.com:22/private"])
def test_a_key_is_a_file_for_ssh_alone_and_is_removed(ssh, url):
    if "://" in url:
        (ssh / "bin" / "ssh").write_text((ssh / "bin" / "ssh").read_text().replace("$*", "${*%/*}private'"))
    done = Try(ssh, url, a_key())
    assert (done.directory / "code").read_text() == "mine\n"
    assert ((ssh / "given").read_text(), (ssh / "mode").read_text()) == (KEY, "600\n")
    arguments = (ssh / "arguments").read_text()
    for option in ("BatchMode=yes", "IdentitiesOnly=yes", "StrictHostKeyChecking=accept-new"):
        assert option in arguments
    assert [path.name for path in done.scratch.iterdir()] == ["gitconfig"]


def test_known_hosts_are_the_only_ones(ssh):
    Try(ssh, "git@example.com:private", a_key("example.com ssh-ed25519 AAAA"))
    arguments = (ssh / "arguments").read_text()
    assert "StrictHostKeyChecking=yes" in arguments
    assert f'UserKnownHostsFile="{ssh}/scratch/git-known-hosts"' in arguments


def test_a_key_is_removed_after_a_fetch_that_fails(ssh):
    (ssh / "bin" / "ssh").write_text(
        "#!/bin/sh\necho 'git@h: Permission denied (publickey).' >&2\nexit 255\n"
    )
    with pytest.raises(
        CannotBring, match=r"an admin can replace a credential: windfall secret git example\.com"
    ):
        Try(ssh, "git@example.com:private", a_key())
    assert [path.name for path in (ssh / "scratch").iterdir()] == ["gitconfig"]


def test_what_a_killed_courier_left_is_replaced_and_not_followed(tmp_path, ssh):
    (tmp_path / "scratch").mkdir()
    (tmp_path / "elsewhere").write_text("old")
    (tmp_path / "scratch" / "git-key").symlink_to(tmp_path / "elsewhere")
    Try(ssh, "git@example.com:private", a_key())
    assert (tmp_path / "elsewhere").read_text() == "old"


def test_a_key_belongs_to_the_jobs_user(tmp_path, ssh, require):
    require(os.geteuid() == 0, "only root can give a file to another user")
    with opened(GitCredential(ssh_key=KEY), "git@example.com:x", str(tmp_path), (65534, 65534)):
        status = (tmp_path / "git-key").stat()
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (65534, 0o600)


def test_a_machine_without_ssh(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(CannotBring, match=r"needs the program ssh .*: install it"),
        opened(None, "git@example.com:x", str(tmp_path), None),
    ):
        pass


def test_a_user_without_an_account_cannot_use_ssh(tmp_path, ssh):
    with (
        pytest.raises(
            CannotBring, match=r"user 3999999, which has no account .*: name the repository by https"
        ),
        opened(None, "git@example.com:x", str(tmp_path), (3_999_999, 3_999_999)),
    ):
        pass


def test_a_credential_of_the_other_kind(ssh):
    with pytest.raises(CannotBring, match="is an SSH key: name the repository by ssh"):
        Try(ssh, "https://example.com/x", a_key())
    with pytest.raises(CannotBring, match="is a token: name the repository by https"):
        Try(ssh, "git@example.com:x", a_token())


# --- a real server ----------------------------------------------------------------------------------


@pytest.fixture
def sshd(tmp_path, require) -> Iterator[SshServer]:
    require(shutil.which("git") is not None, "git is not installed")
    problem = missing_ssh_part()
    require(not problem, problem)
    # ssh names a repository from the root of the file system.
    make_repository(tmp_path / "private", "mine\n")
    (tmp_path / "keys").mkdir()
    server = SshServer(tmp_path / "keys", tmp_path)
    yield server
    server.close()


def an_ssh_key(key: str, known_hosts: str = "") -> str:
    return encode_credential(GitCredential(ssh_key=key, known_hosts=known_hosts))


def test_sshd_lets_in_who_has_the_key(tmp_path, sshd):
    url = sshd.url(f"{tmp_path}/private".lstrip("/"))
    for known_hosts in ("", sshd.known_hosts):
        done = Try(tmp_path, url, an_ssh_key(sshd.key, known_hosts))
        assert (done.directory / "code").read_text() == "mine\n"
        assert [path.name for path in done.scratch.iterdir()] == ["gitconfig"]


def test_sshd_does_not_let_in_who_has_another_key(tmp_path, sshd):
    url = sshd.url(f"{tmp_path}/private".lstrip("/"))
    with pytest.raises(CannotBring, match="an admin can replace a credential: windfall secret git"):
        Try(tmp_path, url, an_ssh_key(sshd.wrong_key))


def test_a_host_that_shows_another_key_is_not_believed(tmp_path, sshd):
    url = sshd.url(f"{tmp_path}/private".lstrip("/"))
    with pytest.raises(
        CannotBring,
        match=r"the key that the host shows is not a known one, .* windfall secret git --known-hosts",
    ):
        Try(tmp_path, url, an_ssh_key(sshd.key, sshd.wrong_hosts))
