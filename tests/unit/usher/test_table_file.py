"""The table on disk: whole or not at all, never older than before."""

from __future__ import annotations

from pathlib import Path

from windfall.hosting.routes import EndpointRoute, ReplicaRoute, RouteTable, VariantRoute
from windfall.usher.table_file import TABLE_NAME, RouteWriter, TableFollower

VARIANT = VariantRoute(
    name="v", weight=1.0, replicas=(ReplicaRoute("job#1", "127.0.0.1", 8080),), shadow=True
)
ENDPOINTS = (EndpointRoute("e", "arn:e", "default", (VARIANT,)),)


def test_what_is_written_is_followed(tmp_path: Path) -> None:
    follower = TableFollower(tmp_path / "usher")
    assert not follower.changed()
    written = RouteWriter(tmp_path / "usher").write(RouteTable(0, ENDPOINTS))
    assert follower.changed()
    assert follower.table == written == RouteTable(1, ENDPOINTS)
    assert not follower.changed()
    assert ((tmp_path / "usher" / TABLE_NAME).stat().st_mode & 0o777) == 0o600
    assert [file.name for file in (tmp_path / "usher").iterdir()] == [TABLE_NAME]


def test_each_change_has_a_higher_version_and_an_equal_table_is_not_written(tmp_path: Path) -> None:
    writer = RouteWriter(tmp_path)
    assert writer.write(RouteTable(0, ENDPOINTS)).version == 1
    assert writer.write(RouteTable(0, ENDPOINTS)).version == 1
    assert writer.write(RouteTable(0)).version == 2
    assert RouteWriter(tmp_path).write(RouteTable(0, ENDPOINTS)).version == 3
    assert RouteWriter(tmp_path).read() == RouteTable(3, ENDPOINTS)


def test_a_table_that_is_damaged_older_or_gone_changes_nothing(tmp_path: Path) -> None:
    follower = TableFollower(tmp_path)
    RouteWriter(tmp_path).write(RouteTable(7, ENDPOINTS))
    assert follower.changed()
    path = tmp_path / TABLE_NAME
    for content in (
        b"",
        b"{",
        b'{"version": "x"}',
        b'\xff\xfe{"version":1}',
        b'{"version":6,"endpoints":[]}',
    ):
        path.write_bytes(content)
        assert not follower.changed()
        assert follower.table == RouteTable(7, ENDPOINTS)
    path.unlink()
    assert not follower.changed()
    assert follower.table == RouteTable(7, ENDPOINTS)
