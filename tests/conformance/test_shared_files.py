"""Values that daemons share in a real PostgreSQL, and keys and secrets of directories that share only those."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from windfall.agent.secrets import kept_secret
from windfall.aws_api.protocol.keys import KeyRing, Role, create_key, ensure_keys_file, load_keys, revoke_key
from windfall.daemon.directory import DataDirectory
from windfall.daemon.errors import DaemonError
from windfall.daemon.secrets import write_secret
from windfall.daemon.shared_files import SEAL_NAME, SharedFiles, open_seal
from windfall.store.coordination import SharedValue, SharedValues
from windfall.store.errors import StoreError
from windfall.store.postgres.opening import open_postgres


@pytest.fixture
def url(postgres_server, request) -> str:
    name = f"shared_{request.node.name.removeprefix('test_')[:40]}"
    postgres_server.execute(f"CREATE SCHEMA {name}")
    return str(postgres_server.url(name))


@pytest.fixture
def values(url: str) -> Iterator[SharedValues]:
    store = open_postgres(url)
    assert store.coordination is not None
    yield store.coordination.shared
    store.close()


def a_directory(values: SharedValues, root: Path, seal_of: Path | None = None) -> SharedFiles:
    directory = DataDirectory(root)
    directory.prepare()
    if seal_of is not None:
        (root / SEAL_NAME).write_bytes((seal_of / SEAL_NAME).read_bytes())
        (root / SEAL_NAME).chmod(0o600)
    return SharedFiles(values, open_seal(values, root, "it", ["a:/a"]), directory, lambda: 7)


def test_a_value_changes_only_from_the_version_that_was_read(values: SharedValues):
    assert values.put("a", b"1", 10, before=0)
    assert not values.put("a", b"2", 11, before=0)
    assert values.put("a", b"2", 12, before=1)
    assert not values.put("a", b"3", 13, before=1)
    assert values.read(["a", "b"]) == {"a": SharedValue(b"2", 2, 12)}
    assert values.put("a", None, 14)
    assert values.put("b", b"\0\xff", 15)
    assert values.versions() == {"a": 3, "b": 1}
    assert values.read(["a"]) == {"a": SharedValue(None, 3, 14)}
    assert values.read([]) == {}


def test_keys_are_joined_and_a_revocation_wins(values: SharedValues, tmp_path: Path):
    first = a_directory(values, tmp_path / "a")
    first.sync()
    [admin] = ensure_keys_file(tmp_path / "a/keys.json", now=1)
    first.sync()
    second = a_directory(values, tmp_path / "b", tmp_path / "a")
    second.sync()
    assert load_keys(tmp_path / "b/keys.json") == [admin]
    assert stat.S_IMODE((tmp_path / "b/keys.json").stat().st_mode) == 0o600
    made = create_key(tmp_path / "b/keys.json", role=Role.SUBMIT, now=2)
    revoke_key(tmp_path / "a/keys.json", admin.access_key_id, now=3)
    for directory in (second, first, second):
        directory.sync()
    for name in ("a", "b"):
        ring = KeyRing(tmp_path / name / "keys.json")
        assert ring.find(admin.access_key_id) is None
        assert ring.find(made.access_key_id) == made


def test_secrets_are_what_their_rows_say(values: SharedValues, tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/secrets").mkdir(mode=0o700)
    write_secret(tmp_path / "a/secrets/old", b"from before")
    write_secret(tmp_path / "a/secrets/@team/old", b"of a tenant")
    first = a_directory(values, tmp_path / "a")
    first.sync()
    second = a_directory(values, tmp_path / "b", tmp_path / "a")
    second.sync()
    there = str(tmp_path / "b/secrets")
    assert (kept_secret(there, "old"), kept_secret(there, "team/old")) == ("from before", "of a tenant")
    first.put_secret("team/old", b"x" * 65536)
    first.put_secret("old", None)
    first.put_secret("../evil", b"1")
    second.sync()
    assert (kept_secret(there, "old"), kept_secret(there, "team/old")) == (None, "x" * 65536)
    assert not (tmp_path / "b/evil").exists()
    # One that was removed elsewhere does not come back from a directory that was away.
    write_secret(tmp_path / "b/secrets/old", b"stale")
    a_directory(values, tmp_path / "b").sync()
    assert kept_secret(there, "old") is None


def test_the_database_has_nothing_that_opens_anything(values: SharedValues, url: str, tmp_path: Path):
    first = a_directory(values, tmp_path / "a")
    [admin] = ensure_keys_file(tmp_path / "a/keys.json", now=1)
    first.put_secret("token", b"open sesame")
    first.sync()
    rows = values.read(list(values.versions()))
    assert len(rows) == 3
    everything = b"".join(row.value or b"" for row in rows.values())
    assert admin.secret_access_key.encode() not in everything
    assert b"sesame" not in everything
    # A row that was copied to another name, or changed, is refused.
    values.put("secret/other", rows["secret/token"].value, 1)
    with pytest.raises(StoreError, match="secret/other of the shared store cannot be read"):
        first.sync()


def test_a_directory_without_the_seal_is_refused(values: SharedValues, tmp_path: Path):
    a_directory(values, tmp_path / "a")
    assert stat.S_IMODE((tmp_path / "a" / SEAL_NAME).stat().st_mode) == 0o600
    with pytest.raises(
        DaemonError, match=f"copy a:/a/{SEAL_NAME} to {tmp_path}/b/{SEAL_NAME}, with mode 600"
    ):
        a_directory(values, tmp_path / "b")
    (tmp_path / "b" / SEAL_NAME).write_text("1" * 64)
    with pytest.raises(DaemonError, match="open to other users"):
        a_directory(values, tmp_path / "b")
    (tmp_path / "b" / SEAL_NAME).chmod(0o600)
    with pytest.raises(DaemonError, match="is of another store"):
        a_directory(values, tmp_path / "b")
    (tmp_path / "b" / SEAL_NAME).write_text("")
    with pytest.raises(DaemonError, match="is damaged"):
        a_directory(values, tmp_path / "b")
