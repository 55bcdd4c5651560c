"""The key file: made, changed, guarded, and followed by the running daemon."""

from __future__ import annotations

import json
import logging
import os
import pwd
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from windfall.aws_api.protocol.errors import KeyFileError
from windfall.aws_api.protocol.keys import (
    KeyRing,
    Role,
    create_key,
    ensure_keys_file,
    list_keys,
    load_keys,
    revoke_key,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "keys.json"


def test_the_first_start_makes_one_admin_key_in_a_closed_file(path):
    (key,) = ensure_keys_file(path, now=7)
    assert (key.role, key.tenant, key.session_token, key.created_at, key.revoked_at) == (
        Role.ADMIN,
        "default",
        None,
        7,
        None,
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ensure_keys_file(path, now=8) == [key]


def test_the_umask_cannot_open_the_file(path):
    before = os.umask(0)
    try:
        ensure_keys_file(path, now=1)
        create_key(path, role=Role.READ, now=2)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_create_list_revoke(path):
    admin = ensure_keys_file(path, now=1)[0]
    key = create_key(path, role=Role.SUBMIT, tenant="vision", now=2, with_session_token=True)
    assert key.session_token
    assert list_keys(path) == [admin, key]
    assert revoke_key(path, key.access_key_id, now=3).revoked_at == 3
    assert revoke_key(path, key.access_key_id, now=9).revoked_at == 3
    assert [entry.revoked_at for entry in load_keys(path)] == [None, 3]
    with pytest.raises(KeyFileError, match="has no key"):
        revoke_key(path, "nobody", now=4)
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["keys.json", "keys.json.lock"]


@pytest.mark.parametrize("tenant", ["", "a/b", "../x", "é", "x" * 65, "-a", "a\n"])
def test_a_tenant_is_a_plain_name(path, tenant):
    with pytest.raises(KeyFileError, match="tenant"):
        create_key(path, role=Role.READ, tenant=tenant, now=1)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_open_to_others_is_refused_with_the_remedy(path, mode):
    ensure_keys_file(path, now=1)
    path.chmod(mode)
    with pytest.raises(KeyFileError, match="chmod 600"):
        KeyRing(path)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"keys":{"a":1}}',
        '{"keys":[{}]}',
        '{"keys":[3]}',
        "\xff",
        '{"keys":[{"role":"king"}]}',
    ],
)
def test_a_damaged_file_is_refused(path, content):
    ensure_keys_file(path, now=1)
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(KeyFileError, match="damaged"):
        load_keys(path)


def test_a_missing_file_is_refused(path):
    with pytest.raises(KeyFileError, match="cannot be read"):
        KeyRing(path)


def test_the_ring_follows_the_file(path):
    admin = ensure_keys_file(path, now=1)[0]
    ring = KeyRing(path)
    assert ring.find(admin.access_key_id) == admin
    assert ring.find("nobody") is None
    key = create_key(path, role=Role.READ, now=2)
    assert ring.find(key.access_key_id) == key
    revoke_key(path, key.access_key_id, now=3)
    assert ring.find(key.access_key_id) is None


def test_the_ring_lets_nobody_in_while_the_file_cannot_be_trusted(path, caplog):
    admin = ensure_keys_file(path, now=1)[0]
    ring = KeyRing(path)
    content = path.read_bytes()
    path.unlink()
    with caplog.at_level(logging.ERROR):
        assert ring.find(admin.access_key_id) is None
        assert ring.find(admin.access_key_id) is None
    assert len(caplog.records) == 1
    assert admin.secret_access_key not in caplog.text
    path.write_bytes(content)
    path.chmod(0o600)
    assert ring.find(admin.access_key_id) == admin


def test_the_ring_notices_that_the_file_was_opened_to_others(path):
    (key,) = ensure_keys_file(path, now=1)
    ring = KeyRing(path)
    path.chmod(0o644)
    assert ring.find(key.access_key_id) is None
    path.chmod(0o600)
    assert ring.find(key.access_key_id) == key


def test_keys_made_at_the_same_time_are_all_kept(path):
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: create_key(path, role=Role.READ, now=n), range(16)))
    assert {key.access_key_id for key in load_keys(path)} == {key.access_key_id for key in made}


def test_a_key_s_repr_hides_its_secret(path):
    key = create_key(path, role=Role.READ, now=1, with_session_token=True)
    assert key.secret_access_key not in repr(key)
    assert key.session_token not in f"{key}"
    assert json.loads(path.read_bytes())["keys"][0]["role"] == "read"


def test_jobs_of_a_key_can_run_as_an_account(path):
    ensure_keys_file(path, now=1)
    # The user that runs the tests, unless that is root.
    name = pwd.getpwuid(os.geteuid()).pw_name if os.geteuid() else "nobody"
    key = create_key(path, role=Role.SUBMIT, now=2, user=name)
    assert KeyRing(path).find(key.access_key_id).user == name


def test_a_key_file_of_an_earlier_version_maps_no_key_to_an_account(path):
    ensure_keys_file(path, now=1)
    content = json.loads(path.read_bytes())
    for entry in content["keys"]:
        del entry["user"]
    path.write_text(json.dumps(content))
    assert [key.user for key in load_keys(path)] == [None]


@pytest.mark.parametrize("user", [7, "", ["alice"]])
def test_a_file_with_a_nonsensical_account_is_refused(path, user):
    ensure_keys_file(path, now=1)
    content = json.loads(path.read_bytes())
    content["keys"][0]["user"] = user
    path.write_text(json.dumps(content))
    with pytest.raises(KeyFileError, match="damaged"):
        load_keys(path)


@pytest.mark.parametrize(
    ("user", "words"),
    [("no-such-account", "There is no user 'no-such-account'"), ("root", "never run as root")],
)
def test_a_key_is_not_mapped_to_an_account_that_jobs_cannot_run_as(path, user, words):
    ensure_keys_file(path, now=1)
    before = path.read_bytes()
    with pytest.raises(KeyFileError, match=words):
        create_key(path, role=Role.SUBMIT, now=2, user=user)
    assert path.read_bytes() == before


def test_a_daemon_that_is_not_root_maps_keys_to_its_own_account_alone(path, require):
    require(os.geteuid() == 0, "only root can give the key file to another user")
    ensure_keys_file(path, now=1)
    nobody = pwd.getpwnam("nobody").pw_uid
    os.chown(path, nobody, -1)
    assert create_key(path, role=Role.SUBMIT, now=2, user="nobody").user == "nobody"
    os.chown(path, nobody, -1)
    with pytest.raises(KeyFileError, match="Only a daemon that runs as root can run jobs as 'daemon'"):
        create_key(path, role=Role.SUBMIT, now=3, user="daemon")


def test_the_ring_names_tenants_with_the_default_one_first(path):
    create_key(path, role=Role.SUBMIT, tenant="zoo", now=1)
    first = create_key(path, role=Role.SUBMIT, tenant="ape", now=2)
    ring = KeyRing(path)
    assert ring.tenants == ("zoo", "ape")
    late = create_key(path, role=Role.SUBMIT, now=3)
    ring.find(late.access_key_id)
    assert ring.tenants == ("default", "zoo", "ape")
    revoke_key(path, first.access_key_id, now=4)
    ring.find(late.access_key_id)
    assert ring.tenants == ("default", "zoo")


def test_while_the_file_cannot_be_trusted_tenants_stay_as_they_were(path):
    create_key(path, role=Role.SUBMIT, tenant="zoo", now=1)
    create_key(path, role=Role.SUBMIT, now=1)
    ring = KeyRing(path)
    path.chmod(0o644)
    path.write_text("{")
    assert ring.find("any") is None
    assert ring.tenants == ("default", "zoo")
