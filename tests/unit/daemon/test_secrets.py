"""Secrets as files: closed to others, replaced whole, listed by name alone."""

from __future__ import annotations

import asyncio
import stat

import pytest

from windfall.agent.secrets import MissingSecret, git_credential, secret_values
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import Role
from windfall.aws_api.protocol.service import Call, Caller
from windfall.daemon.secrets import SIZE_MAX_BYTES, Secrets
from windfall.jobs.containers import Secret
from windfall.jobs.git_credentials import GitCredential, encode_credential

VALUE = "s3cr3t-value"


@pytest.fixture
def kept(tmp_path):
    return Secrets(tmp_path)


def call(**params) -> Call:
    return Call("windfall", "X", params, Caller("KEY", Role.ADMIN, "default"), "us-east-1", "1", 0)


def test_each_tenant_has_secrets_of_its_own(kept, tmp_path):
    asyncio.run(kept.set_secret(call(name="token", value="of default")))
    asyncio.run(kept.set_secret(call(name="token", value="of lab", tenant="lab")))
    # A secret may be called as a tenant is.
    asyncio.run(kept.set_secret(call(name="lab", value="another")))
    assert stat.S_IMODE((tmp_path / "@lab").stat().st_mode) == 0o700
    wanted = (Secret("OWN", "lab/token"), Secret("DEFAULT", "token"))
    assert secret_values(str(tmp_path), wanted) == {"OWN": "of lab", "DEFAULT": "of default"}
    listed = asyncio.run(kept.list_secrets(call(tenant="lab")))
    assert [one["name"] for one in listed["secrets"]] == ["token"]
    assert asyncio.run(kept.list_secrets(call(tenant="nobody")))["secrets"] == []
    asyncio.run(kept.remove_secret(call(name="token", tenant="lab")))
    with pytest.raises(
        MissingSecret, match=r"no secret token here; .* windfall secret set token --tenant lab"
    ):
        secret_values(str(tmp_path), wanted)
    assert secret_values(str(tmp_path), wanted[1:]) == {"DEFAULT": "of default"}


@pytest.mark.parametrize("tenant", ["", "../x", "a/b", "@lab", ".", 7])
def test_a_tenant_is_never_a_path(kept, tmp_path, tenant):
    with pytest.raises(ApiError, match="must be the name of a tenant"):
        asyncio.run(kept.set_secret(call(name="token", value=VALUE, tenant=tenant)))
    assert list(tmp_path.iterdir()) == []
    for name in (f"{tenant}/token", f"{tenant}/../token"):
        with pytest.raises(MissingSecret):
            secret_values(str(tmp_path), (Secret("X", name),))


def test_a_value_is_kept_for_the_agent_and_nobody_else(kept, tmp_path):
    assert asyncio.run(kept.set_secret(call(name="token", value=VALUE))) == {
        "name": "token",
        "tenant": "default",
        "replaced": False,
    }
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    assert secret_values(str(tmp_path), (Secret("T", "token"),)) == {"T": VALUE}
    assert asyncio.run(kept.set_secret(call(name="token", value="new")))["replaced"]
    assert secret_values(str(tmp_path), (Secret("T", "token"),)) == {"T": "new"}
    assert [path.name for path in tmp_path.iterdir()] == ["token"]


def test_a_list_has_names_and_no_values(kept, tmp_path):
    for name in ("b", "a"):
        asyncio.run(kept.set_secret(call(name=name, value=VALUE)))
    # The file of an interrupted write is not a secret.
    (tmp_path / ".left").write_text(VALUE)
    listed = asyncio.run(kept.list_secrets(call()))
    assert [one["name"] for one in listed["secrets"]] == ["a", "b"]
    assert all(one["setAt"] > 0 for one in listed["secrets"])
    assert VALUE not in str(listed)


def test_a_removed_one_is_gone(kept):
    asyncio.run(kept.set_secret(call(name="token", value=VALUE)))
    assert asyncio.run(kept.remove_secret(call(name="token"))) == {}
    assert asyncio.run(kept.list_secrets(call())) == {"tenant": "default", "secrets": []}
    with pytest.raises(ApiError, match="There is no secret token") as refused:
        asyncio.run(kept.remove_secret(call(name="token")))
    assert refused.value.status == 404


def test_a_directory_that_cannot_be_written_is_said(tmp_path):
    with pytest.raises(ApiError, match="The secret was not stored: No such file or directory"):
        asyncio.run(Secrets(tmp_path / "gone").set_secret(call(name="token", value=VALUE)))


@pytest.mark.parametrize("name", [None, 7, "", ".hidden", "..", "a/b", "-x", "é", "a" * 201, "a\n"])
def test_a_name_that_could_be_a_path_or_an_option_is_refused(kept, tmp_path, name):
    with pytest.raises(ApiError, match="The name of a secret"):
        asyncio.run(kept.set_secret(call(name=name, value=VALUE)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [None, "", 7, "x" * (SIZE_MAX_BYTES + 1)])
def test_a_value_that_is_none_or_too_large_is_refused_without_quoting_it(kept, tmp_path, value):
    with pytest.raises(ApiError) as refused:
        asyncio.run(kept.set_secret(call(name="token", value=value)))
    assert "xxx" not in refused.value.message
    assert list(tmp_path.iterdir()) == []


def test_a_credential_for_git_is_kept_like_a_secret_and_is_none_of_a_jobs(kept, tmp_path):
    value = encode_credential(GitCredential(token=VALUE))
    asyncio.run(kept.set_secret(call(name="git@host:8443", value=value, tenant="lab")))
    assert stat.S_IMODE((tmp_path / "@lab" / "git@host:8443").stat().st_mode) == 0o600
    assert git_credential(str(tmp_path), "lab/git@host:8443") == value
    for other in ("git@host:8443", "lab/git@host", "labs/git@host:8443", "lab/../@lab/git@host:8443"):
        assert git_credential(str(tmp_path), other) is None
    with pytest.raises(MissingSecret):
        secret_values(str(tmp_path), (Secret("X", "lab/git@host:8443"),))
    listed = asyncio.run(kept.list_secrets(call(tenant="lab")))
    assert [one["name"] for one in listed["secrets"]] == ["git@host:8443"]
    assert VALUE not in str(listed)
    asyncio.run(kept.remove_secret(call(name="git@host:8443", tenant="lab")))
    assert git_credential(str(tmp_path), "lab/git@host:8443") is None


@pytest.mark.parametrize("value", [VALUE, '{"token": "s3cr3t-value\\n"}'])
def test_another_value_is_no_credential_for_git(kept, tmp_path, value):
    with pytest.raises(ApiError, match="git@host was not set") as refused:
        asyncio.run(kept.set_secret(call(name="git@host", value=value)))
    assert VALUE not in refused.value.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["git@", "git@../x", "git@a/b", "git@Host", "x@host", "git@me@host"])
def test_a_credential_is_for_a_host(kept, tmp_path, name):
    with pytest.raises(ApiError, match="the name of a Git credential is git@HOST"):
        asyncio.run(kept.set_secret(call(name=name, value=encode_credential(GitCredential(token=VALUE)))))
    assert list(tmp_path.iterdir()) == []
