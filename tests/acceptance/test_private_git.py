"""A private repository on a real HTTPS server: its credential is used for its host and tenant, and seen nowhere."""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.acceptance.daemon import RunningWindfall
from tests.acceptance.test_job_users import a_shell, key_client, said, submit
from tests.acceptance.test_without_root import windfall as nobodys
from tests.git_server import GitServer, make_certificate, make_repository, missing_part

__all__ = ["nobodys"]

TOKEN = secrets.token_hex(20)
LOGIN = f"x-access-token:{TOKEN}"
#: All that a job could look at.
PEEK = "cat code; env; cat .git/config; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; true"


@pytest.fixture
def server(tmp_path, require) -> Iterator[GitServer]:
    require(not missing_part(), missing_part())
    make_repository(tmp_path / "served" / "private", "private code\n")
    running = GitServer(tmp_path / "served", make_certificate(tmp_path), LOGIN)
    yield running
    running.close()


@pytest.fixture
def windfall(server, tmp_path) -> Iterator[RunningWindfall]:
    """A daemon that trusts the server's certificate; where it is root, each tenant has a user."""
    running = RunningWindfall(*(("--job-users", "200000-200999") if os.geteuid() == 0 else ()))
    authority = running.root / "authority.pem"
    authority.write_bytes((tmp_path / "localhost.pem").read_bytes())
    authority.chmod(0o644)
    running.extra_environment = {"GIT_SSL_CAINFO": str(authority)}
    (tmp_path / "token").write_text(TOKEN)
    try:
        yield running.up()
    finally:
        running.close()


def seen_in_processes() -> list[str]:
    """What of the processes of this machine shows the token to others: arguments and variables."""
    found = []
    for path in (*Path("/proc").glob("[0-9]*/cmdline"), *Path("/proc").glob("[0-9]*/environ")):
        try:
            if TOKEN.encode() in path.read_bytes():
                found.append(str(path))
        except OSError:
            continue  # It has ended, or is another user's.
    return found


def holding(directory: Path) -> list[Path]:
    """The files below a directory that hold the token in any form."""
    forms = (TOKEN.encode(), base64.b64encode(LOGIN.encode()))
    files = [path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path for path in files if any(form in path.read_bytes() for form in forms)]


def ended(windfall: RunningWindfall, job_id: str) -> dict:
    (job,) = windfall.wait_for([job_id])
    return job


def reason_of(job: dict) -> str:
    """Why the only attempt of a job did not start."""
    return str(job["attempts"][-1]["container"]["reason"])


def test_a_private_repository_is_fetched_and_the_token_is_seen_nowhere(windfall, server, tmp_path):
    batch = a_shell(windfall)
    tags = {"windfall:git": f"{server.url('private')}@main"}
    refused = ended(windfall, submit(batch, PEEK, tags))
    assert refused["status"] == "FAILED"
    assert f"an admin can give a credential: windfall secret git {server.host}" in reason_of(refused)
    assert server.sent == []
    seen: list[str] = []
    server.on_served = lambda: seen.extend(seen_in_processes())
    windfall.windfall("secret", "git", server.host, "--from-file", str(tmp_path / "token"))
    job_id = submit(batch, PEEK, tags)
    job = ended(windfall, job_id)
    assert job["status"] == "SUCCEEDED", job
    log = "\n".join(said(windfall, job_id))
    assert log.startswith("private code")
    assert server.sent, "the server was asked with the token"
    assert seen == [], "no argument and no variable has it while it is used"
    told = [
        windfall.windfall(*words).stdout
        for words in (("describe", job_id), ("secret", "list"), ("why", job_id))
    ]
    for text in (log, str(job), str(batch.describe_jobs(jobs=[job_id])), *told):
        assert TOKEN not in text
    assert f"git@{server.host}" in told[1]
    assert [path.name for path in holding(windfall.root)] == [f"git@{server.host}"]
    windfall.windfall("secret", "git", server.host, "--remove")
    assert holding(windfall.root) == []
    assert ended(windfall, submit(batch, PEEK, tags))["status"] == "FAILED"


def test_another_tenant_does_not_get_it(windfall, server, tmp_path, require):
    require(os.geteuid() == 0, "only root can give a second tenant a user")
    a_shell(windfall)
    other = key_client(windfall, "--tenant", "lab")
    tags = {"windfall:git": f"{server.url('private')}@main"}
    windfall.windfall("secret", "git", server.host, "--from-file", str(tmp_path / "token"))
    refused = ended(windfall, submit(other, PEEK, tags))
    assert refused["status"] == "FAILED"
    assert f"windfall secret git {server.host} --tenant lab" in reason_of(refused)
    assert server.sent == []
    windfall.windfall("secret", "git", server.host, "--tenant", "lab", "--from-file", str(tmp_path / "token"))
    assert ended(windfall, submit(other, PEEK, tags))["status"] == "SUCCEEDED"


def test_a_job_can_neither_name_it_nor_set_it(windfall, server, tmp_path):
    batch = a_shell(windfall)
    windfall.windfall("secret", "git", server.host, "--from-file", str(tmp_path / "token"))
    wanted = {"name": "STOLEN", "valueFrom": f"git@{server.host}"}
    needs = [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}]
    container = {
        "image": "windfall/host",
        "command": ["env"],
        "resourceRequirements": needs,
        "secrets": [wanted],
    }
    with pytest.raises(ClientError, match=r"valueFrom .* is not valid"):
        batch.register_job_definition(jobDefinitionName="x", type="container", containerProperties=container)
    with pytest.raises(AssertionError, match="needs admin"):
        submitting(windfall, "secret", "git", server.host, "--remove")


def submitting(windfall: RunningWindfall, *command: str) -> None:
    """Run a command with a submit key, which must succeed."""
    printed = windfall.windfall("keys", "create", "--role", "submit").stdout
    key = dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)
    done = windfall.shell(f"unset WINDFALL_DATA; windfall {' '.join(command)}", **key)
    assert done.returncode == 0, done.stderr


def test_an_address_with_a_token_is_kept_nowhere(windfall, server):
    batch = a_shell(windfall)
    tags = {"windfall:git": f"https://me:{TOKEN}@{server.host}/private@main"}
    advice = f"windfall secret git {server.host}"
    with pytest.raises(ClientError, match=advice):
        submit(batch, PEEK, tags)
    with pytest.raises(ClientError, match=advice):
        batch.register_job_definition(
            jobDefinitionName="x",
            type="container",
            containerProperties={"image": "windfall/host", "command": ["true"], "vcpus": 1, "memory": 64},
            tags=tags,
        )
    assert holding(windfall.root) == []


def test_a_daemon_that_is_not_root_reads_it_itself(nobodys, server, tmp_path):
    authority = nobodys.root / "authority.pem"
    authority.write_bytes((tmp_path / "localhost.pem").read_bytes())
    authority.chmod(0o644)
    nobodys.extra_environment["GIT_SSL_CAINFO"] = str(authority)
    nobodys.up()
    given = nobodys.root / "given"
    given.write_text(TOKEN)
    given.chmod(0o644)
    nobodys.windfall("secret", "git", server.host, "--from-file", str(given))
    given.unlink()
    seen: list[str] = []
    server.on_served = lambda: seen.extend(seen_in_processes())
    ran = nobodys.windfall("run", "--git", f"{server.url('private')}@main", "--", "sh", "-c", PEEK)
    assert ran.stdout.startswith("private code\n")
    assert TOKEN not in ran.stdout
    assert seen == []
    assert [path.name for path in holding(nobodys.root)] == [f"git@{server.host}"]
